"""Recorded events in, what they mean out: one inference per module, none knows of tables to come.

In: the events of one rank. Out: steps, host and device tasks, waits, gaps, lags, phases, threads.
Imports the tracer's trace and util.
"""
