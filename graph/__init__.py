"""A trace in, its dependency graph out: tasks, edges and lanes, and what work costs unblocked.

`build` is the way through, by what was recorded; `model` declares the tables, `state` what stands
beside them. Imports the tracer's trace and util; knows neither what-ifs nor replay.
"""
