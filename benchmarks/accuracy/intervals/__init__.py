"""Intervals: what was observed, how their widths are fitted, and how often they hold."""
