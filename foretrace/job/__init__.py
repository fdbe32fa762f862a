"""A step in, the whole job out: its time, steps to a loss, resources, price. A room per question.

`whole` puts them together. Imports report, analysis and below.
"""
