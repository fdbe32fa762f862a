"""A graph in, the graph after a change out.

What-ifs stand in `compute`, `memory`, `host`, `batching` and `distributed`, and `registry` lists
them; `scenario` reads and applies lists of them. What they share: `edit` changes graphs, `costs`,
`cluster` and `collectives` tell what work and transfers cost, `measured` what was timed.
Imports graph, the tracer's trace and calibration file, and util; knows nothing of replay.
"""
