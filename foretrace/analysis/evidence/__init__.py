"""What was measured of a what-if, and whether it counts here: the word beside an answer."""
