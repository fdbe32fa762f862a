"""Many recordings and many scenarios in, a table of predictions out, resumable; and its comparison.

Imports report, analysis and below.
"""
