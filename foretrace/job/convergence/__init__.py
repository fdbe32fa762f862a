"""A log of losses and a target in, the step at which it is reached out, with an interval.

Imports of the job `answer` and `data_file`; knows neither recordings nor what-ifs.
"""
