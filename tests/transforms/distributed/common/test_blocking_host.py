"""A host that waits for each transfer: what the link lends it, and how late it wakes."""

from __future__ import annotations

import numpy as np

from foretrace.graph.literal import literal
from foretrace.transforms.cluster.placement import place_workers
from foretrace.transforms.cluster.presets import load_cluster
from foretrace.transforms.distributed.common.blocking_host import (
    WAKE_EACH,
    WAKE_RECEIVER,
    lend,
    wake_ns,
)

MS = 1_000_000


def test_a_shaped_link_saves_up_while_the_host_computes() -> None:
    """125 KB pass in 1 ms at 1 Gbit/s; behind 0.4 ms of computing only as much is saved."""
    graph = literal(
        [("a", "host", 0, 1, "forward"), ("b", "host", 0, 1, "forward")],
        columns={"start_ns": [0, 400_000]},
    )
    placed = place_workers(2, network="1Gbps, burst 125KB")
    left = lend(graph, placed.cluster, np.array([1, 0]), np.array([9 * MS, 9 * MS]))

    assert left.tolist() == [8_600_000, 8 * MS]


def test_a_link_that_is_not_shaped_lends_nothing() -> None:
    """Nor does a shaped one to nobody."""
    graph = literal([("a", "host", 0, 1, "forward")])
    placed = place_workers(2, network="1Gbps")

    assert lend(graph, placed.cluster, np.array([0]), np.array([5])).tolist() == [5]


def test_a_host_wakes_somewhere_in_a_tick() -> None:
    """4 ms on the shaped links; unknown where the cluster's file says none."""
    shaped = load_cluster("shaped-links")

    assert wake_ns(shaped) == 2 * MS
    assert wake_ns(shaped, WAKE_RECEIVER) == 1 * MS
    assert wake_ns(load_cluster("dgx-a100")) == 0
    assert WAKE_EACH.ends == (0.25, 1.0)
