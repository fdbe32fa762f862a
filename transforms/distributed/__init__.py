"""What-ifs about several workers: how work, gradients and parameters are spread, over which links.

Graph in, graph out. What they share lies in `common`. May import `batching` and the machinery:
`measured`, `collectives`, `cluster`, `costs`, `edit`.
"""
