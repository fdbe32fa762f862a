"""What-ifs about the host: its pace, its cores, its loader and its waits. Graph in, graph out.

May import the machinery: `measured`, `costs`, `edit`.
"""
