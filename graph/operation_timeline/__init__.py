"""A timeline of operations in (forward, backward, transfers by stage), a graph out.

The second kind of recording: no calls, no kernels, whole operations of every rank. Imports
`graph.model` and the tracer's trace.
"""
