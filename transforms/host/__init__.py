"""What-ifs about the host: its pace, its cores, its loader and its waits.

In: a graph and parameters by name. Out: the graph after the change. Imports graph, `measured`,
`costs` and `edit`; no other what-ifs.
"""
