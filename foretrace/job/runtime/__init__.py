"""What some steps took in, seconds of all steps of a job out, with an interval.

Imports analysis for steps of recordings and changes, and of the job `answer`, `data_file` and
`report`.
"""
