"""Speeds, prices and a deadline in, how many machines of which kind out."""
