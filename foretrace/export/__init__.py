"""A graph and a scenario in, files for other tools out: one module per format.

Imports analysis and below.
"""
