"""Ranks meet at their collectives: the last to arrive shows the transfer, the others wait."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from foretrace.errors import GraphError
from foretrace.graph.build import build
from foretrace.graph.ranks.merge import merge_ranks
from foretrace.graph.ranks.single_step import AGAIN, LATE
from foretrace.graph.state import Doubt
from foretrace.replaying.replay import replay
from tests.support.recordings.events import (
    Row,
    call,
    kernel,
    later,
    microseconds,
    note,
    op,
    scaled,
    steps,
    sync,
    trace,
)

if TYPE_CHECKING:
    from foretrace.graph.model import Graph
    from foretrace.tracer.trace import Trace

REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
EXCHANGE = "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t"


def step(compute: float, *, name: str = REDUCE) -> list[Row]:
    """Return a step of *compute* µs of kernels; all ranks leave the collective at 500 µs."""
    around = "c10d::alltoall_base_" if name == EXCHANGE else "c10d::allreduce_"
    return [
        call(0, 5, 1),
        op(around, 5, 15),
        call(10, 5, 2),
        kernel(10, compute, 1),
        kernel(10 + compute, 490 - compute, 2, name=name, bytes=4e6),
        sync(20, 510),
    ]


def ranks_of(*rows: list[Row], **more: str) -> Trace:
    """Return several ranks in one recording, *rows* each."""
    every = [{**row, "rank": rank} for rank, one in enumerate(rows) for row in one]
    return trace(every, ranks=tuple(range(len(rows))), **more)


@pytest.mark.parametrize("name", [REDUCE, EXCHANGE])
def test_waiting_for_peers_is_no_transfer(name: str) -> None:
    """Kernels of 100 and 400 µs: the transfer takes 90. 4 times as fast, the step is 0.3 ms.

    An all-to-all, which runs as sends and receives, is a meeting as well.
    """
    rows = [steps(6, 600, step(compute, name=name)) for compute in (100, 400)]
    graph = build(ranks_of(*rows))
    transfers = graph.tasks[graph.tasks["name"] == "transfer"]
    slow = (graph.tasks["kind"] == "kernel").to_numpy()
    work = graph.tasks["work_ns"].to_numpy()
    faster = graph.tasks.assign(work_ns=np.where(slow, work // 4, work))

    assert microseconds(transfers["work_ns"]) == [90] * 4
    assert replay(graph).step_ns == 600_000
    assert replay(replace(graph, tasks=faster)).step_ns == 300_000
    assert graph.notes[-1] == (
        "62% of the ranks' collective time is waiting for the last to arrive"
    )


def test_faster_network_shortens_the_wait_of_all() -> None:
    """Collectives at no cost leave 510 µs: the slow rank's kernel and its host."""
    graph = build(ranks_of(*(steps(6, 600, step(compute)) for compute in (100, 400))))
    free = graph.tasks.assign(
        work_ns=graph.tasks["work_ns"].where(graph.tasks["kind"] != "collective", 0)
    )

    assert replay(replace(graph, tasks=free)).step_ns == 510_000


def test_tables_lie_one_below_the_other() -> None:
    """Lanes, operators and waits of the second rank point into its own rows."""
    graph = build(ranks_of(*(steps(3, 600, step(compute)) for compute in (100, 400))))
    tasks, operators = graph.tasks, graph.operators
    second = tasks[graph.lanes["rank"].to_numpy()[tasks["lane"]] == 1]
    of_rank = graph.lanes["rank"].tolist()

    assert graph.lanes["kind"].tolist() == ["thread", "stream"] * 2 + ["link"]
    assert of_rank == [0, 0, 1, 1, 0]
    assert set(operators["name"].iloc[second["operator"][second["operator"] >= 0]]) == {
        "c10d::allreduce_"
    }
    assert second["operator"].max() == len(operators) - 1
    assert set(graph.edges["kind"][graph.edges["rule"] == "meeting"]) == {
        "collective",
        "return",
        "thread",
    }


def test_unequal_numbers_of_collectives_meet_as_far_as_they_go() -> None:
    """The second rank lost its last one."""
    rows = [steps(3, 600, step(compute)) for compute in (100, 400)]
    graph = build(ranks_of(rows[0], [r for r in rows[1] if r.get("correlation", 0) < 5]))

    assert [doubt.code for doubt in graph.state.doubts] == ["collectives-unmatched"]
    assert microseconds(graph.tasks["work_ns"][graph.tasks["name"] == "transfer"]) == [90, 90]


def test_ranks_without_collectives_stand_side_by_side() -> None:
    """The slowest sets the pace."""
    rows = [steps(3, 600, [op("a", 0, busy)]) for busy in (100, 400)]
    graph = build(ranks_of(*rows))

    assert graph.tasks["name"].tolist().count("transfer") == 0
    assert replay(graph).step_ns == 600_000
    assert "the ranks meet in no recorded collective: each is replayed on its own" in graph.notes


def test_single_step_keeps_how_far_apart_ranks_began() -> None:
    """Rank 1 begins 2.5 ms late: the step lasts from the first start to the last end."""
    rows = [
        [note("ProfilerStep#1", at, 600), op("a", at, 500), op("b", at + 500, 5)]
        for at in (0, 2_500)
    ]
    graph = build(ranks_of(*rows))
    late = graph.edges[graph.edges["rule"] == LATE]

    assert graph.notes[-1] == (
        "the ranks began their only step up to 2.5 ms apart, rank 0 first, rank 1 last: "
        "every repetition keeps that"
    )
    assert graph.measured_step_ns == replay(graph).step_ns == 3_100_000
    assert graph.step_samples_ns == (3_100_000,)
    assert late["kind"].tolist() == ["join"] * 2 + ["fork"] * 2
    assert microseconds(late["lag_ns"]) == [95, 95, 0, 2_500]


def test_ranks_that_begin_together_keep_their_step() -> None:
    """There is nothing to keep apart."""
    rows = [[note("ProfilerStep#1", 0, 600), op("a", 0, 500)]] * 2
    graph = build(ranks_of(*rows))

    assert AGAIN not in set(graph.tasks["name"])
    assert graph.measured_step_ns == 600_000


def test_different_numbers_of_steps_are_refused() -> None:
    """No period is common to ranks of 1 and 2 steps."""
    graphs = [build(trace(steps(count, 600, step(100)))) for count in (2, 3)]

    with pytest.raises(GraphError, match="between 1 and 2 whole steps were recorded"):
        merge_ranks(graphs)


def test_queue_is_imposed_only_where_every_rank_kept_it() -> None:
    """One rank was further ahead than 1,023 launches."""
    graphs = [build(trace(steps(3, 600, step(compute)))) for compute in (100, 400)]
    deep = replace(graphs[1], platform=replace(graphs[1].platform, queue_depth=None))

    assert merge_ranks(graphs).platform.queue_depth == 1_023
    assert merge_ranks([graphs[0], deep]).platform.queue_depth is None


def test_streams_that_overtake_each_other_meet_their_own() -> None:
    """Stream 8 reduces first on rank 0 and last on rank 1: transfers of 80 and 190 µs."""
    ends = {8: 200, 9: 300}
    rows = []
    for begins in ({8: 100, 9: 110}, {8: 120, 9: 90}):
        one = [call(0, 5, 8), call(5, 5, 9), op("a", 10, 390)]
        one += [
            kernel(at, ends[stream] - at, stream, stream=stream, name=REDUCE)
            for stream, at in begins.items()
        ]
        rows.append(steps(3, 400, one))
    graph = build(ranks_of(*rows))
    transfers = graph.tasks[graph.tasks["name"] == "transfer"]

    assert microseconds(transfers["work_ns"]) == [80, 80, 190, 190]
    assert graph.lanes["kind"].tolist().count("link") == 2


def begin_together(idle: float) -> Graph:
    """Build two ranks with 1 ms steps: one works for 700 µs, the other is done *idle* µs before."""
    rows = [
        steps(6, 1_000, [call(0, 5, 1), kernel(10, busy, 1), sync(20, busy + 20)])
        for busy in (700, 700 - idle)
    ]
    return build(ranks_of(*rows))


def test_ranks_that_begin_every_step_together_wait_for_the_last() -> None:
    """Kernels of 700 and 300 µs, and both begin again after 1 ms: twice as fast, after 0.65."""
    graph = begin_together(400)

    assert replay(graph).step_ns == 1_000_000
    assert replay(scaled(graph, 0.5)).step_ns == 650_000
    assert any("begin every step together" in note for note in graph.notes)


def test_ranks_as_late_as_each_other_wait_for_nobody() -> None:
    """There is no edge between ranks that are done within a few µs."""
    assert "step barrier" not in set(begin_together(10).edges["rule"])


def test_steps_of_ranks_are_paired_by_their_numbers() -> None:
    """Ranks recorded steps 0 to 6 and 2 to 8 of 0.6 ms; step 4 takes 2 ms longer, on both."""
    rows = []
    for first in (0, 2):
        one = []
        for number in range(first, first + 7):
            at = 600 * number + 2_000 * (number > 4)
            one.append(note(f"ProfilerStep#{number}", at, 600))
            one += [later(row, at, 3 * number) for row in step(100 if first else 400)]
        rows.append(one)
    graph = build(ranks_of(*rows))

    assert graph.steps == 3
    assert graph.step_samples_ns == (600_000, 2_600_000, 600_000)
    assert replay(graph).step_ns == pytest.approx(graph.measured_step_ns)


def test_doubts_of_one_rank_name_it() -> None:
    """What all ranks have is said once, what one has with its number."""
    both, one = Doubt("a", "of both", "step 1"), Doubt("b", "of one", "step 2")
    graphs = [build(trace(steps(3, 600, step(compute)))) for compute in (100, 400)]
    told = [graphs[0].with_state(doubts=(both, one)), graphs[1].with_state(doubts=(both,))]

    assert merge_ranks(told).state.doubts == (both, Doubt("b", "of one", "rank 0, step 2"))


def test_doubts_that_differ_by_numbers_are_told_once() -> None:
    """The worst rank stands for both, with its place."""
    graphs = [build(trace(steps(3, 600, step(compute)))) for compute in (100, 400)]
    told = [
        graph.with_state(doubts=(Doubt("w", f"waits {ms:.1f} ms", f"stream {ms:.0f}", ms / 10),))
        for graph, ms in zip(graphs, (2, 3), strict=True)
    ]

    assert merge_ranks(told).state.doubts == (
        Doubt("w", "waits 3.0 ms", "2 of 2 ranks, worst rank 0, stream 3", 0.3),
    )
