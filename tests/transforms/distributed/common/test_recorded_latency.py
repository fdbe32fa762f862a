"""What of a recorded collective no bandwidth changes: by sizes, else by what is usual."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from foretrace.graph.literal import literal
from foretrace.graph.state import ProcessGroup
from foretrace.transforms.collectives.usual_latency import Latency, nccl_latency
from foretrace.transforms.distributed.common.recorded_latency import recorded_latency
from foretrace.transforms.edit.columns import is_in, set_label

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

UNKNOWN = float("nan")


def reductions(*size_and_us: tuple[float, float], lanes: str = "stream") -> Graph:
    """Return all-reduces of so many bytes, each of so many µs, beside other work."""
    tasks = [("ncclAllReduce", "collective", 0, round(1_000 * us), None) for _, us in size_and_us]
    kind = "host" if lanes == "thread" else "kernel"
    graph = literal(
        [*tasks, ("work", kind, 1, 1_000, None)],
        columns={"bytes": [*(size for size, _ in size_and_us), UNKNOWN]},
    )
    where = np.array([True, False])
    return replace(
        graph, lanes=graph.lanes.assign(kind=set_label(graph.lanes["kind"], where, lanes))
    )


def latency(graph: Graph) -> Latency:
    """Return the latency of all of its collectives."""
    return recorded_latency(graph, is_in(graph.tasks["kind"], "collective"))


@pytest.mark.parametrize(
    ("recorded", "likely_us"),
    [
        ([(4e3, 12), (4e6, 112)], 11.9),  # 4 KB take a thousandth of the 100 µs of 4 MB
        ([(4e6, 62), (8e6, 112)], 12.0),  # a line: 12.5 µs for each MB
        ([(4e6, 112), (4e6, 130)], 16.85),  # one size: the middle of what is usual for two ranks
        ([(4e6, 112), (5e6, 112)], 16.85),  # sizes too close for a line
        ([(UNKNOWN, 112), (UNKNOWN, 150)], 16.85),
        ([(UNKNOWN, 12), (UNKNOWN, 150)], 12.0),  # no latency is longer than the whole
        ([(4e6, 100), (8e6, 90)], 36.4),  # one waited: no more than what is usual at most
        ([(4e3, 300), (4e6, 400)], 36.4),  # so may a small one have
    ],
)
def test_sizes_tell_latency_from_bytes(
    recorded: list[tuple[float, float]], likely_us: float
) -> None:
    """Where they cannot, the constants of the library do, and the range says how badly."""
    found = latency(reductions(*recorded))

    assert found.likely_ns == pytest.approx(1_000 * likely_us, abs=10)
    assert found.least_ns <= found.likely_ns <= found.most_ns


def test_a_rank_alone_may_have_waited_and_ranks_that_meet_have_not() -> None:
    """Of 12, 14 and 40 µs the shortest is one without waiting; on a link each is, so the middle."""
    recorded = [(4e3, 12), (4e3, 14), (4e3, 40), (4e6, 112)]

    alone, met = (latency(reductions(*recorded, lanes=kind)) for kind in ("stream", "link"))

    assert alone.likely_ns == pytest.approx(12_000, abs=110)
    assert met.likely_ns == pytest.approx(14_000, abs=110)


def test_ranks_that_meet_show_the_latency_of_a_slow_network() -> None:
    """What is usual has no say then."""
    graph = reductions((4e3, 300), (4e6, 700), lanes="link")

    assert latency(graph).likely_ns == pytest.approx(299_600, abs=500)


def test_more_ranks_take_longer() -> None:
    """The group counts where it is recorded, else all ranks."""
    one = reductions((4e6, 500))
    groups = one.with_state(process_groups={0: ProcessGroup("tp", 4)})
    world = replace(one, meta=replace(one.meta, world_size=8))

    assert [latency(graph) for graph in (one, groups, world)] == [
        nccl_latency(ranks) for ranks in (2, 4, 8)
    ]


def test_gloo_has_its_own() -> None:
    """Without a device: 65 µs were usual."""
    graph = reductions((4e6, 500), lanes="thread")

    assert latency(graph).likely_ns == 65_000
