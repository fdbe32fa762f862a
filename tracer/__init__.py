"""A job, or files that others recorded, in; a `Trace` out. The only stage that imports torch.

`readers` reads, `recording` records, `calibration` times operators, `lab` is where this project
measures. Imports util alone.
"""
