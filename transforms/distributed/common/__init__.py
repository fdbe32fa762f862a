"""What distributed what-ifs share: gradients, buckets, transfers, servers and copies of ranks.

Imports `collectives`, `cluster`, `costs` and `edit`; no what-if.
"""
