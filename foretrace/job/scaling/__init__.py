"""Speeds on a few numbers of workers and servers in, the speed on any number of them out.

Imports of the job `answer`, `data_file`, `report` and, for speeds of the replay, `scaled_out`.
"""
