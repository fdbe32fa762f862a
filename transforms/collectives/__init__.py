"""Cluster, workers, kind and size in, the `Cost` of one collective out; by NCCL's or gloo's rules.

Imports `cluster`, `costs` and `edit`.
"""
