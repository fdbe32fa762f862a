"""A trace in, its dependency graph out: tasks, edges and lanes, and what work costs unblocked.

`build` names the stages; `model` declares the tables and the state of a graph. Imports the tracer's
trace and util; knows neither what-ifs nor replay.
"""
