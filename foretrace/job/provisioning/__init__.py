"""A recording, a price list and a deadline in, the cheapest machines that are in time out.

Imports transforms and analysis, and of the job `answer`, `prices`, `report` and `scaled_out`.
"""
