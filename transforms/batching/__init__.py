"""What-ifs about the samples of a step. Graph in, graph out.

May import `distributed.ddp`, which sends the gradients, and the machinery.
"""
