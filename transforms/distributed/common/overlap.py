"""How much computing and communication slow each other while they overlap.

In: a graph and its cluster. Out: shares of speed, and the graph whose transfers take them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.graph.shared_links import Network
from foretrace.transforms.cluster.placement import outside_gb_per_s
from foretrace.transforms.costs.assumed import Assumed
from foretrace.transforms.costs.devices import hardware
from foretrace.transforms.edit.select import has_device

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foretrace.graph.model import Graph
    from foretrace.transforms.cluster.model import Cluster

OVERLAP = Assumed(
    "speed of kernels under NCCL on a device whose is not known",
    *(0.58, 0.4, 0.95),
    "that of an A100 in two traces of one job; NCCL takes fewer multiprocessors elsewhere",
    ("P11",),
    more_is_longer=False,
)
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
    if device is None or "overlap_share" not in device.figures:
        return OVERLAP.now()
    return device.figure("overlap_share")


def host_shares(cluster: Cluster) -> tuple[float, float]:
    """Return the speeds that computing, and that transfers keep on a core that does both."""
    return cluster.host.shares(8 * outside_gb_per_s(cluster))
