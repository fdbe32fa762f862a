"""Tensor parallelism: which layers can be shared, and the job that shares them."""
