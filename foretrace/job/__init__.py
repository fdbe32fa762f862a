"""A step in, the whole job out: its time, steps to a loss, resources, price. A room per question.

`data_file`, `prices`, `scaled_out`, `answer` and `report` are what rooms share; no room imports
another. `whole` puts runtime, convergence and prices together. Imports report, analysis and below.
"""
