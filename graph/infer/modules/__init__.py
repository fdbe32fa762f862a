"""Which module and which phase each task belongs to."""
