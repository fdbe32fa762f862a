"""Step times in, the time of all steps out."""
