"""What-ifs about the samples of a step.

In: a graph and parameters by name. Out: the graph after the change. Imports graph, `measured`,
`costs` and `edit`; of other what-ifs only `distributed.ddp`, which sends the gradients.
"""
