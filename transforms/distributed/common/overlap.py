"""How much computing and communication slow each other while they overlap.

In: a graph and its cluster. Out: shares of speed, and the graph whose transfers take them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.graph.shared_links import Network
from foretrace.transforms.cluster.placement import outside_gb_per_s
from foretrace.transforms.costs.devices import hardware
from foretrace.transforms.edit.select import has_device

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foretrace.graph.model import Graph
    from foretrace.transforms.cluster.model import Cluster

OVERLAP_SHARE = 0.58
"""Speed of kernels under NCCL on a device that is not in the table: that of an A100."""
TRANSFER_SHARE = 0.9
"""Speed of NCCL under kernels: the shortest all-reduces under backward took 1.04 to 1.24 times what
the lone ones of the tables take (the two traces of pair P11)."""


def slow_overlaps(graph: Graph, lanes: Sequence[int], cluster: Cluster) -> Graph:
    """Let transfers on *lanes* and what the worker computes meanwhile slow each other."""
    device = has_device(graph)
    compute, transfer = (overlap_share(graph), TRANSFER_SHARE) if device else host_shares(cluster)
    rank = int(graph.lanes["rank"].iloc[0])
    network = Network(
        members=tuple((lane, rank) for lane in lanes),
        compute_share=compute,
        transfer_share=transfer,
        slowed=("kernel",) if device else ("host",),
    )
    return graph.with_state(network=network)


def overlap_share(graph: Graph) -> float:
    """Return the speed that kernels keep under NCCL on the device of *graph*."""
    device = hardware(graph)
    return OVERLAP_SHARE if device is None else device.figures.get("overlap_share", OVERLAP_SHARE)


def host_shares(cluster: Cluster) -> tuple[float, float]:
    """Return the speeds that computing, and that transfers keep on a core that does both."""
    return cluster.host.shares(8 * outside_gb_per_s(cluster))
