"""What work costs: kernels and operators by class, device data sheets, rooflines, memory.

`roofline` says what a kernel costs on another device, `devices.toml` has the figures. In: tasks and
operators of a graph. Out: times, bytes, shares, each with its source. Imports graph and `edit`.
"""
