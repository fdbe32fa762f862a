"""Two recordings of a job in, why their steps differ out: side by side, and as parts of one sum.

`difference` is the answer, `parts` explains it by replay, `side_by_side` lists what changed. Knows
no output format.
"""
