"""Trace to dependency graph: tasks, edges, lanes, and what they cost when nothing blocks them."""
