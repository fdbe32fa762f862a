"""A graph and a scenario in, answers with their error out: predict, validate, explain, advise.

Imports replay, transforms, graph, tracer and util. Knows no output format.
"""
