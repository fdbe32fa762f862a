"""A graph in, the graph after a change out.

What-ifs stand in `compute`, `memory`, `host`, `batching` and `distributed`, and nothing else does;
`registry` lists them, `signatures` tells what they take, `user_defined` runs those of users, and
`scenario` reads and applies lists of them. What they share: `edit` changes graphs, `costs`,
`cluster` and `collectives` tell what work and transfers cost, `measured` what was timed.
Imports graph, util, and of the tracer what recordings and calibration files say of a job; knows
nothing of replay.
"""
