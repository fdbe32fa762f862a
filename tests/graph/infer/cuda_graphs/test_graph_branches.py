"""Inside one launch of a graph: what a branch waits for shows in when its kernels start."""

from __future__ import annotations

import pytest

from foretrace.graph.build import build
from foretrace.graph.infer.cuda_graphs.graph_branches import count_together, find_graph_branches
from tests.support.recordings.events import Row, call, kernel, parsed, step_ms, steps, sync, trace

GRAPH = "cudaGraphLaunch"


def launch(at: float, number: int, side_at: float) -> list[Row]:
    """Return a graph of two kernels on stream 7 and one on stream 20, *side_at* after its call."""
    return [
        call(at, 10, number, name=GRAPH),
        kernel(at + 10, 99, number, name="a"),
        kernel(at + 110, 99, number, name="b"),
        kernel(at + side_at, 40, number, name="side", stream=20),
    ]


def branches(*side_at: float) -> tuple[list[list[int]], list[list[int]]]:
    """Return edges (source, destination, lag) and late tasks (task, lag) of launches in a row."""
    rows = [row for n, at in enumerate(side_at) for row in launch(1_000 * n, n, at)]
    events, _, devices = parsed(rows)
    found = find_graph_branches(events, devices)
    edges = [column.tolist() for column in (found.src, found.dst, found.lag_ns)]
    return edges, [found.late.tolist(), found.late_ns.tolist()]


def test_branch_that_starts_when_a_kernel_ends_waits_for_it() -> None:
    """The side kernel starts 1 µs after the first one of stream 7 ends, in both launches."""
    assert branches(110, 110) == ([[0, 2], [4, 5], [1_000, 1_000]], [[], []])


def test_branch_that_starts_with_its_graph_waits_for_nothing() -> None:
    """It starts 2 µs after the first kernel."""
    assert branches(12, 12) == ([[], [], []], [[], []])


def test_coincidence_in_one_launch_of_two_is_none() -> None:
    """The side kernel starts 100 and 150 µs after the first one: the delay stays, unexplained."""
    assert branches(110, 160) == ([[], [], []], [[4, 5], [125_000, 125_000]])


def test_launches_of_kernels_are_no_graphs() -> None:
    """Every call launches one task; a task without a call belongs to none."""
    _, _, devices = parsed([call(0, 5, 1), kernel(8, 5, 1), kernel(20, 5, 9)])

    assert count_together(devices).tolist() == [1, 0]


def test_sync_of_the_stream_waits_for_every_branch() -> None:
    """It returns 5 µs after the branch on stream 20, so that half of that makes 110 of 200 µs.

    Without the rule it seems to return 95 µs after the kernel on stream 7.
    """
    rows = [
        call(0, 10, 1, name=GRAPH),
        kernel(10, 90, 1, name="a"),
        kernel(10, 180, 1, name="side", stream=20),
        sync(10, 195, name="cudaStreamSynchronize"),
    ]
    rows[-1]["correlation"] = 2
    record = {**kernel(10, 0, 2, name="Stream Sync"), "kind": "sync", "wait_stream": 7}
    recording = trace(steps(6, 200, [*rows, record]))

    assert step_ms(recording) == 0.2
    assert step_ms(recording, 0.5) == 0.11
    assert step_ms(recording, 0.5, graph_branches=False) == pytest.approx(0.155)


def test_next_launch_waits_for_every_branch() -> None:
    """The kernel behind the graph starts when the branch beside ends, on another stream."""
    rows = [
        call(0, 10, 1, name=GRAPH),
        call(10, 5, 2),
        kernel(10, 90, 1, name="a"),
        kernel(10, 180, 1, name="side", stream=20),
        kernel(191, 50, 2, name="next"),
    ]
    graph = build(trace(steps(6, 260, rows)))
    edges = graph.edges[(graph.edges["rule"] == "graph end") & (graph.edges["shift"] == 0)]
    names = graph.tasks["name"].astype(str).to_numpy()
    pairs = {(names[a], names[b]) for a, b in zip(edges["src"], edges["dst"], strict=True)}

    assert ("side", "next") in pairs
    assert ("next", "side") in pairs


def test_branches_beside_are_a_doubt_that_names_the_place() -> None:
    """Half the step runs on stream 20; a delayed branch is named as well, a plain job is not."""
    rows = [
        call(0, 10, 1, name=GRAPH),
        kernel(10, 90, 1, name="a"),
        kernel(10, 180, 1, name="side", stream=20),
    ]
    plain = [call(0, 10, 1), kernel(10, 90, 1)]
    late = [rows[0], rows[1], kernel(160, 60, 1, name="side", stream=20)]

    assert [(d.code, d.place) for d in build(trace(steps(6, 260, rows))).state.doubts] == [
        ("graph-dependencies", "stream 20, side")
    ]
    assert [d.code for d in build(trace(steps(6, 260, late))).state.doubts] == [
        "graph-branch",
        "graph-dependencies",
    ]
    assert build(trace(steps(6, 260, plain))).state.doubts == ()
