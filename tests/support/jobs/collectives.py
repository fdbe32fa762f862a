"""Jobs of several ranks, written down by hand: what they reduce, and which of them waits."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from foretrace.graph.literal import literal
from foretrace.transforms.cluster.placement import Placement
from foretrace.transforms.cluster.presets import ethernet
from foretrace.transforms.collectives.cost import collective_cost
from foretrace.transforms.distributed.common.workers import with_workers

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

RACKS = Placement(ethernet(4, 1.0, racks=2, uplink_gbit=0.3), (0, 1, 2, 3))
"""Two machines in each of two racks, with an uplink of 0.3 Gbit/s."""
SLOW_RACKS = Placement(ethernet(4, 1.0, racks=2, uplink_gbit=0.2), (0, 1, 2, 3))
BYTES = 4 * 2**20
SIZE = 4_000_000.0


def two_ranks() -> Graph:
    """Return two ranks that compute 50 and 70 ns and then reduce together for 20."""
    graph = literal(
        [
            ("mm", "kernel", 0, 50, "forward"),
            ("ready", "kernel", 0, 0, None),
            ("mm", "kernel", 1, 70, "forward"),
            ("ready", "kernel", 1, 0, None),
            ("transfer", "collective", 2, 20, "communication"),
        ],
        [(0, 4, "event"), (2, 4, "event"), (4, 1, "event"), (4, 3, "event")],
        wrap=True,
    )
    return replace(graph, lanes=graph.lanes.assign(rank=np.array([0, 1, 0], np.int16)))


def in_racks(kind: str = "all_reduce", ms: float = 175.2) -> Graph:
    """Return one measured collective of 4 MiB in two racks, neighbours together."""
    graph = literal(
        [(kind, "collective", 0, round(ms * 1e6), "communication")],
        columns={"bytes": [BYTES]},
        wrap=True,
    )
    return with_workers(graph, RACKS)


def reduces(*ready_ns: int) -> Graph:
    """Return a step: an all-reduce behind each kernel of so many ns, and an update after all."""
    count = len(ready_ns)
    kernels = [("mm", "kernel", 0, ns, "backward") for ns in ready_ns]
    reduce = [("all_reduce", "collective", 1, 0, "communication")] * count
    graph = literal(
        [*kernels, ("update", "kernel", 0, 1_000, "optimizer"), *reduce],
        [(at, count + 1 + at, "event") for at in range(count)] + [(2 * count, count, "event")],
        columns={
            "bytes": [np.nan] * (count + 1) + [SIZE] * count,
            "work_ns": [*ready_ns, 1_000]
            + [collective_cost(*SLOW_RACKS, "all_reduce", SIZE).ns + 7_000] * count,
        },
        wrap=True,
    )
    return with_workers(graph, SLOW_RACKS)


def measured_collectives() -> Graph:
    """Return two all-reduces of 10 and 50 ns without anything around them."""
    return literal([("ncclAllReduce", "collective", 0, t, None) for t in (10, 50)])
