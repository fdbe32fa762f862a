"""Graph in, timeline out: start and end of every task once the job has settled on its pace.

Imports graph, and util; knows nothing of transforms, nor of how a recording was read.
Begin with `replay.py`; `engine` computes moments, everything else says what they mean.
"""
