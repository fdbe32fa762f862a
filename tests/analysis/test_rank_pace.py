"""Which rank sets the pace: who arrives last, and how long the others wait for it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from foretrace.analysis.explain import explain
from foretrace.analysis.rank_pace import RankPace, pace_setter, rank_paces
from foretrace.analysis.summary import summarise
from foretrace.graph.build import build
from foretrace.graph.literal import literal
from foretrace.replaying.replay import replay
from foretrace.report.forms import as_json, as_text
from foretrace.transforms.scenario import parse_scenario
from tests.support.recordings.events import Row, call, kernel, note, op, steps, sync, trace

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def merged(*ranks: list[Row]) -> Graph:
    """Build the graph of several ranks recorded together."""
    every = [{**row, "rank": number} for number, one in enumerate(ranks) for row in one]
    return build(trace(every, ranks=tuple(range(len(ranks)))))


def step(compute: float) -> list[Row]:
    """Return a step of *compute* µs of kernels; all ranks leave the collective at 500 µs."""
    return [
        call(0, 5, 1),
        call(10, 5, 2),
        kernel(10, compute, 1),
        kernel(10 + compute, 490 - compute, 2, name=REDUCE),
        sync(20, 510),
    ]


def test_slow_rank_is_waited_for() -> None:
    """Kernels of 100, 200 and 400 µs: rank 2 is last, the others wait 300 and 200 µs for it."""
    found = rank_paces(replay(merged(*(steps(6, 600, step(ns)) for ns in (100, 200, 400)))))

    assert [each.rank for each in found] == [0, 1, 2]
    assert [each.waits_ns for each in found] == [300_000, 200_000, 0]
    assert [each.last_at for each in found] == [0, 0, 4]
    assert [each.meets for each in found] == [4, 4, 4]
    assert [each.awaited_ns for each in found] == [0, 0, 250_000]
    assert [each.path_ns for each in found] == [0, 0, 600_000]
    assert pace_setter(found) == (
        "rank 2 sets the pace: it is the last at 4 of 4 collectives, where each other rank waits "
        "0.2 ms a step; 100% of the chain that sets it is its own"
    )


def test_late_rank_sets_the_pace() -> None:
    """A rank that begins its only step 2.5 ms late needs no collective to be the slowest."""
    rows = [[note("ProfilerStep#1", at, 600), op("a", at, 500)] for at in (0, 2_500)]
    found = rank_paces(replay(merged(*rows)))

    assert [each.begins_ns for each in found] == [0, 2_500_000]
    assert pace_setter(found) == (
        "rank 1 sets the pace: it begins 2.5 ms after rank 0; "
        "100% of the chain that sets it is its own"
    )


def test_ranks_that_never_meet_drift_apart() -> None:
    """Each repeats at its own pace: where one stands when the other begins says nothing."""
    found = rank_paces(replay(merged(*(steps(3, 600, [op("a", 0, busy)]) for busy in (100, 400)))))

    assert [each.begins_ns for each in found] == [0, 0]


def test_one_rank_has_no_peers() -> None:
    """There is nobody to compare it with."""
    assert rank_paces(replay(literal([("a", "host", 0, 5, None)], wrap=True))) == ()
    assert pace_setter(()) is None


def test_devices_without_a_host_begin_with_their_first_task() -> None:
    """Two streams of two ranks, no threads: the slower one drifts behind."""
    graph = literal([("a", "kernel", 0, 5, None), ("b", "kernel", 1, 9, None)], wrap=True)
    graph = replace(graph, lanes=graph.lanes.assign(rank=np.array([0, 1], np.int16)))

    found = rank_paces(replay(graph))

    assert [each.path_ns for each in found] == [0, 9]
    assert found[0].begins_ns == 0 < found[1].begins_ns


def test_summary_and_explanation_name_the_rank() -> None:
    """One line per rank and one sentence; before and after a change."""
    rows = [steps(6, 600, step(ns)) for ns in (100, 400)]
    every = [{**row, "rank": number} for number, one in enumerate(rows) for row in one]
    recorded = trace(every, ranks=(0, 1))
    told = as_text(summarise(recorded))
    known = json.loads(as_json(summarise(recorded)))
    why = as_text(explain(build(recorded), parse_scenario(["straggler(rank=0, slowdown=9)"])))

    assert re.search(r"  rank 1 +0 +0 +0\.300 +4 of 4\n", told)
    assert "rank 1 sets the pace: it is the last at 4 of 4 collectives" in told
    assert known["pace"].startswith("rank 1 sets the pace")
    assert [each["last_at"] for each in known["pace_of_ranks"]] == [0, 4]
    assert re.search("  before +rank 1 sets the pace", why)
    assert re.search("  after +rank 0 sets the pace", why)


def test_nothing_is_said_of_a_rank_for_nothing() -> None:
    """A rank that neither begins late nor arrives last only has its share of the path."""
    even = [RankPace(0, 0.0, 0.0, 0, 0, 0.0, 3.0), RankPace(1, 0.0, 0.0, 0, 0, 0.0, 1.0)]

    assert pace_setter(even) == "rank 0 sets the pace: 75% of the chain that sets it is its own"
