"""Machines, links and where workers are placed: `Cluster` files in, loads of links out.

Imports graph, `edit` and util. The presets lie in `clusters/`, one TOML file each.
"""
