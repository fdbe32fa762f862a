"""What was inferred of one rank in, its graph out: task, edge and lane tables.

In: `InferredRank`. Out: a `Graph` of the window. Imports `graph.infer` and `graph.model`.
"""
