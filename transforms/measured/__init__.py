"""Calibrations in, measured costs of changed operators out, where they tell something of a graph.

In: what `foretrace calibrate` timed. Out: graphs whose changed work costs what was measured.
Imports `costs`, `edit` and the tracer's calibration file.
"""
