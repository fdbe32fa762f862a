"""Rules of the timeline graph, each on a job whose answer changes without it; times in µs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from benchmarks.accuracy.distributed.operation_timelines import step_lengths
from foretrace.errors import GraphError
from foretrace.graph.build import build
from foretrace.graph.model import Rules
from foretrace.graph.operation_timeline.replica_shards import find_shards
from foretrace.replaying.replay import replay
from tests.support.recordings.operation_timeline import job, named_threads, operation, read

if TYPE_CHECKING:
    from foretrace.replaying.timeline import Timeline
    from tests.support.recordings.operation_timeline import Event

COMPUTE = {"forward-compute": 10, "backward-compute": 20}
PIPELINE = {
    **COMPUTE,
    **{f"{way}-{what}": 1 for way in ("forward", "backward") for what in ("send", "recv")},
}


def replayed(events: list[Event]) -> Timeline:
    """Replay the recorded durations, without the host's delays."""
    return replay(build(read(events), rules=Rules(kernel_gap=False)))


def starts(timeline: Timeline, name: str, *, rank: int = 0) -> list[float]:
    """Return when the operations of a kind start on a rank, in µs."""
    graph = timeline.graph
    lane = graph.tasks["lane"].to_numpy()
    mine = (graph.lanes["rank"] == rank).to_numpy()[lane] & (graph.tasks["name"] == name).to_numpy()
    return (timeline.start_ns[mine] / 1e3).tolist()


def test_a_pipeline_runs_as_its_dependencies_allow() -> None:
    """Two stages, two micro-batches, 1F1B, written out.

    0: F0 0-10, F1 10-20, B0 42-62, B1 72-92     sends: F0 10-11, F1 21-22
    1: F0 11-21, B0 21-41, F1 41-51, B1 51-71    sends: B0 41-42, B1 71-72
    """
    timeline = replayed(job(PIPELINE, stages=2, micro_batches=2))

    assert starts(timeline, "forward-compute") == [0, 10]
    assert starts(timeline, "forward-compute", rank=1) == [11, 41]
    assert starts(timeline, "backward-compute", rank=1) == [21, 51]
    assert starts(timeline, "backward-compute") == [42, 72]
    assert timeline.step_ns == 92_000


def test_a_receive_is_posted_after_the_same_direction() -> None:
    """Stage 1 can take F1 once its forward 0 has ended (21), before its backward 0 has (41)."""
    timeline = replayed(job(PIPELINE, stages=2, micro_batches=2))

    assert starts(timeline, "forward-recv", rank=1) == [10, 21]
    assert starts(timeline, "forward-send") == [10, 21]


def test_a_send_delays_no_computation() -> None:
    """Stage 0 computes F1 while F0 is under way for 50 µs."""
    events = job({**PIPELINE, "forward-send": 50, "forward-recv": 50}, stages=2, micro_batches=2)

    assert starts(replayed(events), "forward-compute") == [0, 10]


@pytest.mark.parametrize(
    ("name", "together"),
    [
        ("grads-reduce-scatter", [(0, 2), (1, 3)]),
        ("embedding-grads-all-reduce", [(0, 1), (2, 3)]),
        ("optimizer-clip-main-grad", [(0, 1, 2, 3)]),
        ("layernorm-grads-all-reduce", [(0,), (1,), (2,), (3,)]),
        ("optimizer", [(0,), (1,), (2,), (3,)]),
    ],
)
def test_who_communicates_together_begins_together(name: str, together: list[Any]) -> None:
    """Two replicas of two stages; each rank computes for another time.

    Stage 1 of replica 0: forward 10-20, backward 20-140, and its stage 0 until 160.
    Replicas of a stage scatter together, both ends of a replica its embedding's gradients,
    everybody clips together, layer-norm gradients and the optimizer are a rank's own.
    """
    lengths = {**COMPUTE, "forward-send": 0, "forward-recv": 0, "backward-send": 0,
               "backward-recv": 0, name: 5}  # fmt: skip
    late = {
        ("backward-compute", replica, stage): 20 + 7 * replica + 100 * stage
        for replica in range(2)
        for stage in range(2)
    }
    timeline = replayed(job(lengths, stages=2, replicas=2, changed=late))

    begin = [starts(timeline, name, rank=rank)[0] for rank in range(4)]
    ends = [160, 140, 174, 147]
    for group in together:
        assert {begin[rank] for rank in group} == {max(ends[rank] for rank in group)}


def test_what_follows_the_last_computation_keeps_its_order() -> None:
    """Norm, embedding, scatter, clip, optimizer: 30 + 1 + 2 + 3 + 4 + 5."""
    tail = {
        "layernorm-grads-all-reduce": 1,
        "embedding-grads-all-reduce": 2,
        "grads-reduce-scatter": 3,
        "optimizer-clip-main-grad": 4,
        "optimizer": 5,
    }
    timeline = replayed(job({"params-all-gather": 6, **COMPUTE, **tail}))

    assert [starts(timeline, name)[0] for name in tail] == [36, 37, 39, 42, 46]
    assert timeline.step_ns == 51_000


def test_each_step_begins_for_all_ranks_at_once() -> None:
    """The replica that is through after 30 µs waits for the one that needs 60."""
    events = job(COMPUTE, replicas=2, steps=2, changed={("backward-compute", 1, 0): 50})
    timeline = replayed(events)

    assert starts(timeline, "forward-compute") == [0, 60]
    assert step_lengths(timeline).tolist() == [60_000, 60_000]
    assert timeline.graph.step_samples_ns == (1_050_000, 1_050_000)


def test_delays_of_the_host_are_the_usual_ones() -> None:
    """The optimizer starts 4 µs after backward in three of four steps, 90 after it in one."""
    events = named_threads()
    for step, delay in enumerate((4, 4, 90, 4)):
        begin = 1_000 * step
        events += [
            operation("forward-compute", begin, 10, step=step),
            operation("backward-compute", begin + 10, 20, step=step),
            operation("optimizer", begin + 30 + delay, 5, step=step),
        ]
    trace = read(events)

    assert replay(build(trace)).step_ns == 39_000
    assert replay(build(trace, rules=Rules(kernel_gap=False))).step_ns == 35_000


def test_a_step_that_lost_operations_is_left_out() -> None:
    """A note says how many."""
    events = job({**COMPUTE, "optimizer": 5}, steps=3)
    graph = build(read(events[:-1]))

    assert graph.steps == 2
    assert "1 steps have lost operations and are left out" in graph.notes


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ([operation("thinking", 1, 1), *named_threads()], "operation 'thinking' is unknown"),
        ([operation("optimizer", 1, 1), *named_threads()], "holds no forward-compute"),
        (job(COMPUTE, stages=2), "stage 0 has 0 forward-send for 1 micro-batches"),
        (
            [*job(PIPELINE, stages=2)[:-1]],
            "stage 1 has 0 backward-send for 1 micro-batches",
        ),
    ],
)
def test_what_does_not_fit_together_gets_one_sentence(events: list[Event], text: str) -> None:
    """The stage and the operation are named."""
    with pytest.raises(GraphError, match=text):
        build(read(events))


def test_replicas_of_a_shard_gather_among_themselves() -> None:
    """Replicas 2 and 3 reduce 700 µs after 0 and 1, every step: one long forward holds two back."""
    lengths = {**COMPUTE, "grads-reduce-scatter": 10, "optimizer": 5}
    events = job(lengths, replicas=4, steps=3, changed={("forward-compute", 2, 0): 500})
    for event in events:
        if event["name"] == "grads-reduce-scatter" and event["pid"] >= 2:
            event["ts"] += 700
        if event["name"] == "optimizer":
            event["ts"] += 800
    timeline = replayed(events)

    assert starts(timeline, "optimizer", rank=0)[0] == 40
    assert starts(timeline, "optimizer", rank=3)[0] == 530


@pytest.mark.parametrize(
    ("begins", "shards"),
    [
        ([0, 1, 50, 51], [[0, 1], [2, 3]]),
        ([0, 50, 51, 1], [[0, 3], [1, 2]]),
        ([0, 1, 0, 50], [[0, 1, 2, 3]]),
        ([0, 30, 60, 90], [[0, 1, 2, 3]]),
        ([0, 1, 1, 0], [[0, 1, 2, 3]]),
    ],
)
def test_shards_are_told_by_when_their_members_begin(
    begins: list[int], shards: list[list[int]]
) -> None:
    """Groups of one size, of two at least; else all replicas are one."""
    rows = np.arange(4).reshape(1, 4, 1, 1)
    found = find_shards(rows, np.array(begins), np.full(4, 100))

    assert [shard.tolist() for shard in found] == shards
