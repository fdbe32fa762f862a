"""Of one rank of several, what a collective took beyond its like may be waiting for the others."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from foretrace.graph.check import check
from foretrace.graph.literal import literal
from foretrace.replaying.replay import replay
from foretrace.transforms.distributed.common.hidden_waits import (
    WAITING,
    hidden_waits,
    part_waits,
)

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

UNKNOWN = float("nan")


def rank_alone(*size_and_us: tuple[float, int], world_size: int | None = 2) -> Graph:
    """Return all-reduces of so many bytes, each of so many µs, and an update behind the last."""
    tasks = [("ncclAllReduce", "collective", 0, 1_000 * us, None) for _, us in size_and_us]
    graph = literal(
        [*tasks, ("update", "kernel", 1, 10_000, None)],
        [(len(tasks) - 1, len(tasks), "event")],
        columns={"bytes": [*(size for size, _ in size_and_us), UNKNOWN]},
        wrap=True,
    )
    return replace(graph, meta=replace(graph.meta, world_size=world_size))


@pytest.mark.parametrize(
    ("recorded", "waits_us"),
    [
        ([(4e6, 150), (4e6, 100)], [50, 0]),
        ([(4e6, 150), (8e6, 200)], [50, 0]),  # per byte the second one was the shortest
        ([(4e6, 150), (9e6, 100)], [142.2, 92.2]),  # no likes: all but 7.8 µs of latency
        ([(4e6, 150)], [142.2]),
        ([(UNKNOWN, 150), (UNKNOWN, 100)], [142.2, 92.2]),
    ],
)
def test_the_shortest_of_a_size_shows_what_the_others_waited(
    recorded: list[tuple[float, int]], waits_us: list[float]
) -> None:
    """Without another one of its size in the step nothing does."""
    waits = hidden_waits(rank_alone(*recorded))

    assert (waits / 1_000).tolist() == [*waits_us, 0]


def test_nobody_waits_for_ranks_that_are_not_there() -> None:
    """One process alone, or ranks that meet in the graph."""
    recorded = ((4e6, 150), (4e6, 100))
    alone = rank_alone(*recorded, world_size=1)
    several = rank_alone(*recorded)
    several = replace(several, lanes=several.lanes.assign(rank=np.array([0, 1], np.int16)))

    assert not hidden_waits(alone).any()
    assert not hidden_waits(several).any()


def test_parted_waits_change_nothing_by_themselves() -> None:
    """Whoever waited for a collective now waits for what stands behind it."""
    graph = rank_alone((4e6, 100), (4e6, 150))

    parted = part_waits(graph, hidden_waits(graph))

    check(parted)
    assert replay(parted).step_ns == replay(graph).step_ns
    assert parted.tasks["work_ns"].tolist() == [100_000, 100_000, 10_000, 50_000]
    assert parted.tasks["name"].iloc[-1] == WAITING
