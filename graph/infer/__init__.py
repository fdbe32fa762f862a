"""Recorded events in, what they mean out: one inference per module, none knows of tables to come.

In: the events of one rank. Out: steps, host and device tasks, waits, gaps, lags, phases, threads.
Begin with `rank.py`, which has their order. Imports the tracer's trace and `graph.model`.
"""
