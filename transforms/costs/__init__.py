"""What work costs: kernels and operators by class, device data sheets, rooflines, memory.

In: tasks and operators of a graph. Out: times, bytes, shares, each with its source. Imports graph
and `edit`.
"""
