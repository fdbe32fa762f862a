"""Where steps begin and end, and which of them are replayed."""
