"""What-ifs that trade time for memory: computed again, encoded, or kept on the host.

In: a graph and parameters by name. Out: the graph after the change. Imports graph, `measured`,
`costs` and `edit`; no other what-ifs.
"""
