"""The timeline of a replayed graph: times, paces, breakdowns, lanes, and errors that name tasks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from foretrace.errors import GraphError
from foretrace.graph.literal import literal
from foretrace.replaying.replay import replay
from foretrace.tracer.trace import TraceMeta

if TYPE_CHECKING:
    from foretrace.graph.model import Graph


def step_graph(**settings: object) -> Graph:
    """Two launches and two kernels; the device needs 30 of the host's 20."""
    return literal(
        [
            ("launch a", "launch", 0, 10, "forward"),
            ("launch b", "launch", 0, 10, "backward"),
            ("a", "kernel", 1, 10, "forward"),
            ("b", "kernel", 1, 20, "backward"),
        ],
        [(0, 2, "launch", 4), (1, 3, "launch", 5), (3, 1, "return", 5)],
        wrap=True,
        **settings,
    )


def test_timeline_shows_one_settled_repetition() -> None:
    """Launch 4 before the first kernel, the second kernel's return ends the step."""
    timeline = replay(step_graph())

    assert timeline.start_ns.tolist() == [0, 10, 4, 15]
    assert timeline.end_ns.tolist() == [10, 40, 14, 35]
    assert (timeline.period_ns, timeline.step_ns) == (40.0, 40.0)
    assert (timeline.host_step_ns, timeline.device_step_ns) == (40.0, 40.0)
    assert (timeline.settled, timeline.fill_ns) == (True, 0)


def test_a_timeline_is_shown_by_its_step_and_what_sets_its_pace() -> None:
    """Host and device have their own step while one runs ahead; the recording's stands beside."""
    ms = 1_000_000
    kernel = literal([("gemm", "kernel", 0, 8 * ms, None)], wrap=True, measured_step_ns=8.5 * ms)
    endless = replace(replay(kernel), steady=replace(replay(kernel).steady, settled=False))

    assert repr(replay(kernel)) == (
        "<Timeline of literal: step 8.000 ms, measured 8.500 ms\n"
        " pace set by device (device 8.000 ms), settled>"
    )
    assert repr(endless).endswith("not settled>")
    assert "pace set by device and host (host 0.000 ms, device 0.000 ms)" in repr(
        replay(step_graph())
    )


def test_critical_path_in_the_timelines_own_time() -> None:
    """Segments fill the step from 0 to its end."""
    path = replay(step_graph()).critical_path
    columns = ["task", "from_ns", "to_ns", "why", "kind", "phase", "lane"]

    assert path[columns].values.tolist() == [
        [0, 0, 10, "work", "launch", "forward", 0],
        [3, 10, 15, "launch", "kernel", "backward", 1],
        [3, 15, 35, "work", "kernel", "backward", 1],
        [1, 35, 40, "return", "launch", "backward", 0],
    ]


def test_breakdowns_sum_to_the_step() -> None:
    """By kind with idle reasons, by phase, and by module, where all is unknown."""
    timeline = replay(step_graph())

    assert timeline.breakdown() == {
        "kernel": 20.0,
        "launch": 10.0,
        "launch gap": 5.0,
        "return gap": 5.0,
    }
    assert timeline.breakdown("phase") == {"backward": 30.0, "forward": 10.0}
    assert timeline.breakdown("module") == {"unknown": 40.0}


def test_bottleneck_names_the_sides_of_the_limiting_cycle() -> None:
    """A sync couples both sides; without it the device alone sets the pace."""
    coupled = step_graph()
    edges = coupled.edges[coupled.edges["kind"] != "return"].reset_index(drop=True)

    assert replay(coupled).bottleneck == "device and host"
    free = replay(replace(coupled, edges=edges))
    assert free.bottleneck == "device"
    assert (free.step_ns, free.host_step_ns, free.device_step_ns) == (30.0, 20.0, 30.0)
    assert free.limiting_cycle["task"].tolist() == [2, 3]


def test_step_is_a_share_of_the_window() -> None:
    """A window of two steps gives half its period per step."""
    steps = {"step": np.array([0, 0, 0, 1], np.int32)}
    timeline = replay(step_graph(columns=steps))

    assert (timeline.period_ns, timeline.step_ns) == (40.0, 20.0)
    assert sum(timeline.breakdown().values()) == 20.0


def test_throughput_needs_a_batch_size() -> None:
    """Samples per second, or nothing."""
    meta = TraceMeta(format="foretrace", batch_size=80)

    assert replay(step_graph()).throughput is None
    assert replay(step_graph(meta=meta)).throughput == pytest.approx(2e9)


def test_a_graph_without_device_has_no_device_step() -> None:
    """Unknown is None, never 0."""
    timeline = replay(literal([("work", "host", 0, 10, None)], wrap=True))

    assert (timeline.host_step_ns, timeline.device_step_ns) == (10.0, None)


def test_slack_and_lanes() -> None:
    """The first kernel may start later, since the second is launched later still."""
    timeline = replay(step_graph())

    assert timeline.slack_ns.tolist() == [0, 0, 1, 0]
    assert timeline.lanes.to_numpy().tolist() == [[20.0, 20.0, 0.0], [30.0, 0.0, 10.0]]


def test_cycle_is_reported_with_the_names_of_its_tasks() -> None:
    """The engine knows rows, the error knows names."""
    graph = step_graph()
    edges = graph.edges.copy()
    edges.loc[edges["kind"] == "return", "kind"] = "launch"
    edges.loc[edges["src"] == 3, "dst"] = 2

    with pytest.raises(
        GraphError,
        match=r"replay: edges form a cycle through tasks .*\(rows of tasks: 2 'a', 3 'b'\)",
    ):
        replay(replace(graph, edges=edges))


def test_empty_graph_is_an_error() -> None:
    """A window without tasks has no step."""
    graph = step_graph()
    empty = replace(graph, tasks=graph.tasks.iloc[:0], edges=graph.edges.iloc[:0])

    with pytest.raises(GraphError, match=r"replay: nothing to replay: the window holds no task$"):
        replay(empty)


def crossed() -> Graph:
    """Return two ranks that reduce a and b in opposite order, with the transfers on links."""
    graph = literal(
        [
            ("reduce a", "collective", 0, 5, None),
            ("reduce b", "collective", 0, 5, None),
            ("reduce b", "collective", 1, 5, None),
            ("reduce a", "collective", 1, 5, None),
            ("transfer", "collective", 2, 5, None),
            ("transfer", "collective", 3, 5, None),
        ],
        [
            *((row, transfer, "collective") for row, transfer in ((0, 4), (3, 4), (1, 5), (2, 5))),
            *((transfer, row, "return") for row, transfer in ((0, 4), (3, 4), (1, 5), (2, 5))),
        ],
    )
    kinds = ["stream", "stream", "link", "link"]
    lanes = graph.lanes.assign(kind=kinds, rank=[0, 1, 0, 0])
    return replace(graph, lanes=lanes.astype({"kind": "category", "rank": "int16"}))


def test_deadlock_names_ranks_and_collectives() -> None:
    """Each rank waits in the collective that the other reaches last."""
    with pytest.raises(
        GraphError,
        match=r"^replay: deadlock: ranks 0, 1 wait for each other in 0 'reduce a' of rank 0,"
        r" 1 'reduce b' of rank 0, 2 'reduce b' of rank 1, 3 'reduce a' of rank 1$",
    ):
        replay(crossed())


def test_deadlock_without_collectives_names_what_waits() -> None:
    """Two ranks whose kernels wait for each other."""
    graph = crossed()
    kinds = graph.tasks["kind"].astype(object).where(graph.tasks.index > 3, "kernel")
    graph = replace(graph, tasks=graph.tasks.assign(kind=kinds.astype("category")))

    with pytest.raises(GraphError, match=r"ranks 0, 1 wait for each other in 0 'reduce a' of"):
        replay(graph)
