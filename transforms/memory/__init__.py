"""What-ifs that trade time for memory. Graph in, graph out.

May import the machinery: `measured`, `costs`, `edit`.
"""
