"""The job as it was recorded: its replay, what that misses, and what of it may be read in two ways.

In: a graph. Out: a `baseline.Baseline`, which every question asks first.
"""
