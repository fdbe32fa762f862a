"""Epochs so far and batch sizes to come in, seconds of the whole training out.

Imports replaying, transforms and analysis for costs from recordings, and of the job `answer` and
`data_file`.
"""
