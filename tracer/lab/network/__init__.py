"""Ranks on links in, measured collectives out: what `calibrate --collectives` runs."""
