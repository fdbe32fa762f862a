"""Cluster, workers, kind and size in, the `Cost` of one collective out.

`nccl` and `gloo` hold the costs of their libraries, `cost` chooses between them and measured
tables. Imports `cluster`, `costs` and `edit`.
"""
