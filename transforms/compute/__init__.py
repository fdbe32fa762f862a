"""What-ifs about what is computed, and on what device: precision, kernels, compilers, optimizers.

In: a graph and parameters by name. Out: the graph after the change. Imports graph, the tracer's
trace, `measured`, `costs` and `edit`; of other what-ifs only those of `host`.
"""
