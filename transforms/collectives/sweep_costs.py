"""Collectives timed alone, in a sweep on this machine, in; a table of their costs out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.transforms.cluster.cost_tables import KINDS, CostEntry, make_table
from foretrace.transforms.cluster.presets import load_cluster
from foretrace.transforms.cluster.topology import topology_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from foretrace.tracer.lab.network.collective_sweep import CollectiveCost
    from foretrace.transforms.cluster.cost_tables import CollectiveTable

SHAPED, UNSHAPED = "shaped-links", "this-machine"
"""Clusters of processes over TCP: with links of a given rate, and as fast as the machine."""


def cost_table(
    costs: Iterable[CollectiveCost], *, device: str = "", topology: str | None = None
) -> CollectiveTable:
    """Return *costs* of collectives alone as a table for `collective_cost`.

    *topology* is that of processes that talk over TCP, at the rate that each one says, unless it
    is given.
    """
    return make_table(
        CostEntry(
            device,
            _topology(cost.rate_mbit, cost.ranks) if topology is None else topology,
            cost.kind,
            cost.ranks,
            cost.bytes,
            float(cost.ns),
            cost.spread,
        )
        for cost in costs
        if cost.kind in KINDS
    )


def _topology(rate_mbit: int | None, ranks: int) -> str:
    """Return what a table calls the links of so many processes.

    >>> _topology(300, 2), _topology(None, 2)
    ('tcp, 1 in a machine, 0.3 Gbit/s', 'tcp, 1 in a machine, 9.6 Gbit/s')
    """
    if rate_mbit is None:
        return topology_of(load_cluster(UNSHAPED, ranks), range(ranks))
    links = load_cluster(SHAPED, nodes=ranks).with_network(gb_per_s=rate_mbit / 8_000)
    return topology_of(links, range(ranks))
