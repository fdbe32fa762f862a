"""Changes that others measured and published."""
