"""Trace to dependency graph: tasks, edges, lanes, and what they cost when nothing blocks them."""

from foretrace.graph.model import Graph, Platform, Rules

__all__ = ["Graph", "Platform", "Rules"]
