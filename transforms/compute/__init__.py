"""What-ifs about what is computed, and on what device: precision, kernels, compilers, optimizers.

Graph in, graph out. May import `host`, and the machinery: `measured`, `costs`, `edit`.
"""
