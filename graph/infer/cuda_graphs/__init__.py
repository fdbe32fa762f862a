"""Launches of captured graphs, and the branches that their kernels run in."""
