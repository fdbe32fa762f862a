"""One recorded step of several ranks: the window repeats with every rank as late as it was."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from foretrace.graph.build import build
from foretrace.graph.literal import literal
from foretrace.graph.ranks.merge import merge_ranks
from foretrace.graph.ranks.single_step import AGAIN, begin_together
from foretrace.replaying.replay import replay
from foretrace.transforms.distributed.straggler import remove_stragglers
from tests.support.recordings.events import Row, call, kernel, note, op, scaled, trace

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def rank(late: float, compute: float, tail: float) -> list[Row]:
    """Return a step that begins *late*, computes, meets the others at 900 µs, and has a *tail*."""
    begin = 10 + late
    return [
        note("ProfilerStep#1", late, 50),
        op("step", late, 20),
        call(late, 5, 1),
        call(late + 5, 5, 2),
        call(late + 12, 5, 3),
        kernel(begin, compute, 1),
        kernel(begin + compute, 900 - begin - compute, 2, name=REDUCE),
        kernel(901, tail, 3),
    ]


def merged(*ranks: list[Row]) -> Graph:
    """Build the graph of several ranks recorded together."""
    every = [{**row, "rank": number} for number, one in enumerate(ranks) for row in one]
    return build(trace(every, ranks=tuple(range(len(ranks)))))


def test_window_of_all_ranks_is_met() -> None:
    """Rank 1 begins 500 µs late and everybody waits; rank 0 has the longest tail, 250 µs."""
    graph = merged(rank(0, 100, 250), rank(500, 300, 50))

    assert graph.measured_step_ns == 1_151_000
    assert abs(replay(graph).step_ns / graph.measured_step_ns - 1) < 0.02


def test_late_rank_stays_late_whatever_kernels_take() -> None:
    """Kernels at no cost: 500 µs until rank 1 begins, the transfer, and host time."""
    graph = scaled(merged(rank(0, 100, 250), rank(500, 300, 50)), 0)
    step = replay(graph).step_ns

    assert 500_000 <= step < 700_000


def test_ranks_can_begin_together() -> None:
    """Without stragglers nobody is late, unless it is excepted; alike ranks are left alone."""
    graph = merged(rank(0, 100, 250), rank(500, 300, 50))
    steps = [
        replay(each).step_ns
        for each in (
            graph,
            begin_together(graph),
            begin_together(graph, [0]),
            begin_together(graph, [1]),
        )
    ]
    even = merged(rank(0, 100, 250), rank(0, 300, 50))

    assert steps[0] - steps[1] == 500_000
    assert steps[1:] == [steps[1], steps[1], steps[0]]
    assert replay(remove_stragglers(graph)).step_ns < steps[0] - 400_000
    assert begin_together(even) is even


def test_devices_alone_begin_late_too() -> None:
    """Ranks without host tasks: streams of 30 and 20 ns, 100 ns apart."""
    ranks = []
    for number, (at, work) in enumerate(((0, 30), (100, 20))):
        one = literal([("k", "kernel", 0, work, None)], wrap=True, measured_step_ns=work)
        lanes = one.lanes.assign(rank=one.lanes["rank"] + number)
        ranks.append(replace(one, tasks=one.tasks.assign(start_ns=one.tasks["start_ns"] + at),
                             lanes=lanes.astype({"rank": "int16"})))  # fmt: skip
    graph = merge_ranks(ranks)

    assert graph.tasks["name"].tolist()[-1] == AGAIN
    assert graph.measured_step_ns == replay(graph).step_ns == 120
