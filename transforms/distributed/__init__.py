"""What-ifs about several workers: how work, gradients and parameters are spread, over which links.

Graph in, graph out. What they share lies in `common`; helpers of one what-if stand in its folder.
One builds on another where it says so: `pipeline` on `tensor_parallel` and `batching`, `ddp` on
`powersgd`. May import the machinery: `measured`, `collectives`, `cluster`, `costs`, `edit`.
"""
