"""What-ifs about the samples of a step.

In: a graph and parameters by name. Out: the graph after the change. Imports graph, `measured`,
`costs` and `edit`, and the tracer's readers for a second recording; of other what-ifs only
`distributed.ddp`, which sends the gradients.
"""
