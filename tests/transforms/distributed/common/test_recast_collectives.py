"""Transfers changed in place: what led to them still does, and whoever waited still waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from foretrace.errors import TransformError
from foretrace.graph.literal import literal
from foretrace.graph.shared_links import Network
from foretrace.replaying.replay import replay
from foretrace.transforms.distributed.common.recast_collectives import (
    insert_before,
    insert_behind,
    insert_behind_wait,
    recast,
    redirect_edges,
    share_network,
)
from foretrace.transforms.distributed.common.transfers import add_lane, put

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

ROW = np.array([2])


def job() -> Graph:
    """Return kernels of 10 and 20 µs and a transfer of 30 µs between them."""
    return literal(
        [
            ("mm", "kernel", 0, 10_000, None),
            ("update", "kernel", 0, 20_000, None),
            ("all_reduce", "collective", 1, 30_000, None),
        ],
        [(0, 2, "event"), (2, 1, "event")],
        columns={"bytes": [np.nan, np.nan, 64.0]},
        wrap=True,
    )


def test_recast_names_times_and_bytes() -> None:
    """The rest of the row stays; no transfer takes less than nothing."""
    graph = recast(
        job(), ROW, name="sent", work_ns=np.array([-5]), size=np.array([8.0]), cost="table"
    )

    assert graph.tasks[["name", "work_ns", "bytes", "cost"]].iloc[2].tolist() == [
        "sent",
        0,
        8.0,
        "table",
    ]
    assert replay(graph).step_ns == 30_000


def test_another_transfer_takes_over() -> None:
    """Two in a row instead of one; the old one is left without anything to do with it."""
    graph, lane = add_lane(job(), kind="stream", device=0)
    graph, rows = put(
        graph, lane, np.array([2, 2]), name="part", work_ns=25_000, bytes=32.0, cost="table"
    )
    graph = redirect_edges(graph, ROW, rows[:1], rows[1:])

    assert replay(graph).step_ns == 10_000 + 50_000 + 20_000


def test_work_before_and_behind_a_transfer() -> None:
    """8.5 MB at 900 GB/s x 0.85 are 11,111 ns: before the exchange, and before who waits for it."""
    size = np.array([8.5e6])
    graph = insert_before(job(), ROW, size, "compress", "dgc")
    graph = insert_behind_wait(graph, ROW, size, "restore")

    assert replay(graph).step_ns == 60_000 + 2 * 11_111


def test_work_behind_a_wait_of_the_host() -> None:
    """On a CPU it follows the task that waits."""
    graph = literal(
        [("sync", "sync", 0, 0, None), ("all_reduce", "collective", 1, 30_000, None)],
        [(1, 0, "return")],
    )
    changed = insert_behind_wait(graph, np.array([1]), np.array([1e6]), "restore")

    assert changed.edges[["src", "dst"]].to_numpy().tolist()[-1] == [0, 2]


def test_what_nobody_waits_for_is_not_followed_by_anything() -> None:
    """Without a wait there is no place to put it."""
    graph = literal([("all_reduce", "collective", 0, 30_000, None)])

    assert len(insert_behind_wait(graph, np.array([0]), np.array([1e6]), "restore").tasks) == 1


def test_transfer_without_a_source_is_refused() -> None:
    """The text says which what-if, and what to do."""
    graph = literal([("all_reduce", "collective", 0, 30_000, None)])

    with pytest.raises(TransformError, match=r"dgc cannot tell .* put ddp\(workers="):
        insert_before(graph, np.array([0]), np.array([1e6]), "compress", "dgc")


def test_task_behind_a_transfer_is_waited_for_instead() -> None:
    """5 µs more between the transfer and the update, on the transfer's lane."""
    graph, new = insert_behind(job(), ROW, name="more", kind="kernel", work_ns=5_000, cost="table")

    assert replay(graph).step_ns == 65_000
    assert graph.tasks["lane"].iloc[new].tolist() == [1]


def test_new_lanes_slow_down_as_the_old_one() -> None:
    """They join the same ranks; without a network there is nothing to join."""
    graph = job()
    shared = share_network(graph.with_state(network=Network(members=((1, 0),))), 1, [2, 3])

    network = shared.state.network
    assert network is not None
    assert network.members == ((1, 0), (2, 0), (3, 0))
    assert share_network(graph, 1, [2]) is graph
