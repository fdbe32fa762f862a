"""Graph in, timeline out: start and end of every task once the job has settled on its pace.

Begin with `replay.py`. `lower` turns waits, the launch queue and copy engines into a program,
`engine` computes its moments, everything else says what they mean. Imports graph and util; knows
nothing of transforms, nor of how a recording was read.
"""
