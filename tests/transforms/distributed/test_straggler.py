"""One slow rank, and none: on literal ranks, on timelines, and beside published replays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from foretrace.errors import TransformError
from foretrace.graph.build import build
from foretrace.graph.literal import literal
from foretrace.graph.model import Rules
from foretrace.replaying.replay import replay
from foretrace.testing import check_transform
from foretrace.transforms.distributed.straggler import remove_stragglers, straggler
from foretrace.transforms.registry import TRANSFORMS
from tests.support.jobs.collectives import two_ranks
from tests.support.jobs.simple import gpu_job
from tests.support.recordings.operation_timeline import job, read


def test_a_slow_rank_makes_the_others_wait() -> None:
    """Rank 0 computes 100 instead of 50 ns: it is the last now."""
    changed = check_transform(straggler, two_ranks(), rank=0, slowdown=2)

    assert changed.tasks["work_ns"].tolist() == [100, 0, 70, 0, 20]
    assert replay(two_ranks()).step_ns == 90
    assert replay(changed).step_ns == 120


def test_a_rank_that_was_waited_for_anyway_may_be_slower() -> None:
    """Rank 0 with 1.4 times its time is no later than rank 1."""
    assert replay(straggler(two_ranks(), rank=0, slowdown=1.4)).step_ns == 90


def test_a_pause_stands_before_each_forward_pass() -> None:
    """A rank of host tasks sleeps 1 ms in each of two steps."""
    graph = literal(
        [
            ("fwd", "host", 0, 50, "forward"),
            ("bwd", "host", 0, 90, "backward"),
            ("fwd", "host", 0, 50, "forward"),
            ("bwd", "host", 0, 90, "backward"),
            ("other", "host", 1, 10, "forward"),
        ],
        columns={"step": np.array([0, 0, 1, 1, 0], np.int32)},
        wrap=True,
    )
    graph = replace(graph, lanes=graph.lanes.assign(rank=np.array([0, 1], np.int16)))
    changed = straggler(graph, rank=0, delay_ms=1)

    assert replay(changed).step_ns == replay(graph).step_ns + 1_000_000
    assert changed.notes == ("straggler: rank 0 pauses 1 ms per step",)


def test_nothing_asked_changes_nothing() -> None:
    """The graph comes back as it is."""
    graph = two_ranks()

    assert straggler(graph, rank=1) is graph


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"rank": 2, "slowdown": 2}, "rank=2 is none of this job's 2 ranks"),
        ({"rank": 0, "slowdown": 0}, "slowdown=0 is out of range"),
        ({"rank": 0, "delay_ms": -1}, "delay_ms=-1 is out of range"),
        ({"rank": 0, "delay_ms": 1}, "nothing to change: no host task of that rank"),
    ],
)
def test_absurd_stragglers_are_refused(parameters: dict[str, float], text: str) -> None:
    """One sentence each."""
    with pytest.raises(TransformError, match=text):
        straggler(two_ranks(), **parameters)  # type: ignore[arg-type]


def test_a_lone_rank_has_nobody_to_wait_for_it() -> None:
    """Neither what-if means anything there."""
    with pytest.raises(TransformError, match="this job has one rank"):
        straggler(gpu_job(), rank=0, slowdown=2)
    with pytest.raises(TransformError, match="holds one rank"):
        remove_stragglers(gpu_job())


def test_without_stragglers_all_take_the_mean() -> None:
    """50 and 70 ns become 60; the transfer keeps its 20."""
    changed = check_transform(remove_stragglers, two_ranks())

    assert changed.tasks["work_ns"].tolist() == [60, 0, 60, 0, 20]
    assert (
        changed.tasks["cost"].tolist() == ["measured", "recorded"] + ["measured"] + ["recorded"] * 2
    )


def test_transfers_take_the_median() -> None:
    """One of three was held up."""
    graph = two_ranks()
    graph = literal(
        [
            ("mm", "kernel", 0, 50, None),
            ("mm", "kernel", 1, 50, None),
            *[("transfer", "collective", 2, work, None) for work in (20, 21, 900)],
        ]
    )
    graph = replace(graph, lanes=graph.lanes.assign(rank=np.array([0, 1, 0], np.int16)))

    assert remove_stragglers(graph).tasks["work_ns"].tolist() == [50, 50, 21, 21, 21]


def test_only_tasks_that_are_alike_are_levelled() -> None:
    """Another shape, another module, another phase is other work."""
    graph = literal(
        [("mm", "host", at % 2, 10 * at, "forward" if at < 4 else "backward") for at in range(6)],
        columns={"operator": [0, 0, 1, 1, 0, 0]},
        operators={"name": ["aten::mm"] * 2, "shapes": ["[[2,3],[3,4]]", "[[9,3],[3,4]]"]},
    )
    graph = replace(graph, lanes=graph.lanes.assign(rank=np.array([0, 1], np.int16)))

    assert remove_stragglers(graph).tasks["work_ns"].tolist() == [5, 5, 25, 25, 45, 45]


@pytest.mark.parametrize(
    ("kept", "work"),
    [
        ({"except_ranks": [1]}, [60, 0, 70, 0, 20]),
        ({"except_ranks": [0, 1]}, [50, 0, 70, 0, 20]),
        ({"except_pattern": "^mm"}, [50, 0, 70, 0, 20]),
        ({"except_pattern": "ready"}, [60, 0, 60, 0, 20]),
    ],
)
def test_what_is_excepted_keeps_what_was_recorded(
    kept: dict[str, list[int]], work: list[int]
) -> None:
    """So that one can ask whose slowness costs what."""
    assert remove_stragglers(two_ranks(), **kept).tasks["work_ns"].tolist() == work  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kept", "text"),
    [
        ({"except_ranks": [5]}, "rank 5 is not in this job; it has ranks 0 to 1"),
        ({"except_ranks": 1}, "1 is no list of ranks"),
        ({"except_pattern": "nothing"}, "no task named 'nothing'"),
    ],
)
def test_exceptions_that_are_not_there_are_refused(kept: dict[str, list[int]], text: str) -> None:
    """One sentence each."""
    with pytest.raises(TransformError, match=text):
        remove_stragglers(two_ranks(), **kept)  # type: ignore[arg-type]


def test_a_timeline_without_stragglers_runs_at_the_common_pace() -> None:
    """Replica 1 computes backward in 50 µs, replica 0 in 20: both in 35 instead of waiting."""
    events = job(
        {"forward-compute": 10, "backward-compute": 20, "grads-reduce-scatter": 4},
        replicas=2,
        changed={("backward-compute", 1, 0): 50},
    )
    graph = build(read(events), rules=Rules(kernel_gap=False))

    assert replay(graph).step_ns == 64_000
    assert replay(TRANSFORMS["remove_stragglers"](graph)).step_ns == 49_000
    assert replay(straggler(graph, rank=0, slowdown=2)).step_ns == 64_000
    assert replay(straggler(graph, rank=1, slowdown=2)).step_ns == 124_000
