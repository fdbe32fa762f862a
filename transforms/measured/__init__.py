"""Costs that were timed on the machine at hand, in place of a rule, where they tell something.

In: a graph, what `foretrace calibrate` timed, and a what-if with its parameters. Out: the graph
whose changed work costs what was measured, or ``None``. Imports graph, `costs`, `edit`, util, and
of the tracer the format of the file and the facts of a job; never the what-ifs or their list.
"""
