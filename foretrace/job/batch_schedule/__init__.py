"""Batch sizes that change between epochs in, the time of the epochs to come out."""
