"""A graph and a scenario in, answers with their error out: predict, validate, explain, advise.

`warnings` says what to doubt, `validated_errors` how far off a what-if is and when it counts as
validated, `validation_scope` where that holds. Imports replay, transforms, graph, tracer and util.
Knows no output format.
"""
