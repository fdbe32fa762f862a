"""Graphs of single ranks in, one graph of all ranks out, joined where their collectives meet.

Imports `graph.model` and its neighbours; nothing of how a rank's graph was inferred.
"""
