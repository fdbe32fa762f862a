"""Primitives: what each verb does to tasks and edges, on graphs of a few tasks."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from foretrace.errors import TransformError
from foretrace.graph.check import check
from foretrace.graph.literal import literal
from foretrace.transforms.edit.primitives import (
    insert,
    insert_kernels,
    reorder,
    rewire,
    scale,
    scale_lags,
)
from foretrace.transforms.edit.select import require, select, within_operator
from tests.support.edges import links
from tests.support.jobs.kernels import two_kernels


def test_scale_multiplies_work_and_says_why() -> None:
    """Only selected tasks change; their cost is labelled."""
    graph = scale(two_kernels(), np.array([False, False, True, False]), 0.5, cost="roofline")

    assert graph.tasks["work_ns"].tolist() == [5, 5, 25, 70]
    assert graph.tasks["cost"].tolist() == ["recorded", "recorded", "roofline", "recorded"]


def test_scale_refuses_negative_time() -> None:
    """A factor below 0 or without a value is an error."""
    with pytest.raises(TransformError, match="less than nothing"):
        scale(two_kernels(), np.ones(4, bool), -1.0, cost="user")


def test_no_change_makes_time_overflow() -> None:
    """Beyond 115 days neither work nor lags are scaled: whole nanoseconds would run over."""
    graph = literal([("a", "host", 0, 10, None), ("b", "host", 0, 20, None)], lag_ns=4)

    with pytest.raises(TransformError, match="more than 115 days"):
        scale(graph, np.array([True, True]), 1e300, cost="user")
    with pytest.raises(TransformError, match="more than 115 days"):
        scale_lags(graph, np.array([True]), 1e300)


def test_scale_lags_changes_only_selected_edges() -> None:
    """The untraced time between host tasks shrinks; launch lags stay."""
    graph = two_kernels(lag_ns=10)
    graph = scale_lags(graph, (graph.edges["kind"] == "thread").to_numpy(), 0.5)

    assert graph.edges["lag_ns"].tolist() == [5, 10, 6, 6]


def test_insert_after_splices_into_the_lane() -> None:
    """A→B becomes A→X→B, and the lag of A→B stays before B."""
    graph, rows = insert(
        literal([("a", "host", 0, 5, None), ("b", "host", 0, 5, None)], lag_ns=7),
        np.array([0, 0]),
        name="x",
        kind="host",
        work_ns=np.array([1, 2]),
        cost="prior",
    )

    assert rows.tolist() == [2, 3]
    assert links(check(graph), "thread") == [(0, 2, 0, 0), (2, 3, 0, 0), (3, 1, 7, 0)]
    assert graph.tasks["work_ns"].tolist() == [5, 5, 1, 2]
    assert graph.tasks["duration_ns"].tolist()[2:] == [0, 0]


def test_insert_before_takes_over_what_its_anchor_waited_for() -> None:
    """A join into the anchor holds for the task before it; the start keeps host order."""
    graph, _ = insert(
        literal(
            [("a", "host", 0, 5, None), ("b", "host", 0, 5, None), ("c", "host", 1, 9, None)],
            [(2, 1, "join", 3)],
            lag_ns=7,
        ),
        np.array([1]),
        place="before",
        name="x",
        kind="host",
        work_ns=1,
        cost="prior",
    )

    assert links(check(graph), "thread") == [(0, 3, 7, 0), (3, 1, 0, 0)]
    assert links(graph, "join") == [(2, 3, 3, 0)]
    assert graph.tasks["start_ns"].tolist()[3] == graph.tasks["start_ns"].tolist()[1] - 1


def test_insert_at_the_end_of_a_window_stays_in_it() -> None:
    """After the last task, the edge into the next repetition starts at the new one."""
    graph, _ = insert(
        literal([("a", "host", 0, 5, None), ("b", "host", 0, 5, None)], wrap=True),
        np.array([1]),
        name="x",
        kind="host",
        work_ns=1,
        cost="prior",
    )

    assert links(check(graph), "thread") == [(0, 1, 0, 0), (1, 2, 0, 0), (2, 0, 0, 1)]


def test_an_inserted_kernel_brings_its_launch() -> None:
    """Kernel on the stream with the device's gap, launch beside the anchor's launch."""
    graph, rows = insert_kernels(
        two_kernels(), np.array([3]), place="before", name="cast", work_ns=9, cost="prior"
    )

    assert rows.tolist() == [4]
    assert links(check(graph), "stream") == [(2, 4, 0, 0), (4, 3, 2, 0)]
    assert links(graph, "thread") == [(0, 5, 0, 0), (5, 1, 0, 0)]
    assert links(graph, "launch") == [(0, 2, 6, 0), (1, 3, 6, 0), (5, 4, 6, 0)]
    assert graph.tasks["work_ns"].tolist()[4:] == [9, 4]


def test_a_graph_launch_also_launches_the_inserted_kernel() -> None:
    """One call that launched several kernels launches one more; no new call appears."""
    graph = literal(
        [("cudaGraphLaunch", "launch", 0, 5, None)] + [("k", "kernel", 1, 5, None)] * 2,
        [(0, 1, "launch", 6), (0, 2, "launch", 6)],
    )
    graph, _ = insert_kernels(graph, np.array([1]), name="cast", work_ns=9, cost="prior")

    assert links(check(graph), "launch") == [(0, 1, 6, 0), (0, 2, 6, 0), (0, 3, 6, 0)]


def test_a_kernel_without_launch_is_followed_on_its_stream_only() -> None:
    """Backlog from before the window has no call, and what is put beside it has none."""
    graph, _ = insert_kernels(
        literal([("k", "kernel", 0, 5, None)]), np.array([0]), name="x", work_ns=1, cost="prior"
    )

    assert links(check(graph), "launch") == []
    assert links(graph, "stream") == [(0, 1, 0, 0)]


def test_rewire_drops_and_adds_edges() -> None:
    """Edges go by mask and come by table."""
    graph = two_kernels()
    add = pd.DataFrame({"src": [2], "dst": [1], "kind": ["event"], "lag_ns": [4], "shift": [0]})
    graph = rewire(graph, (graph.edges["kind"] == "stream").to_numpy(), add)

    assert links(check(graph), "stream") == []
    assert links(graph, "event") == [(2, 1, 4, 0)]


def test_reorder_runs_tasks_in_the_order_given() -> None:
    """Neighbours before and after the reordered tasks keep their place."""
    tasks = [(name, "kernel", 0, 5, None) for name in "abcd"]
    graph = reorder(literal(tasks, lag_ns=1), np.array([2, 1]))

    assert links(check(graph), "stream") == [(0, 2, 1, 0), (1, 3, 1, 0), (2, 1, 1, 0)]


def test_reorder_refuses_scattered_tasks() -> None:
    """Tasks that do not follow one another cannot swap places."""
    tasks = [(name, "kernel", 0, 5, None) for name in "abcd"]

    with pytest.raises(TransformError, match="do not follow one another"):
        reorder(literal(tasks), np.array([0, 2]))


def test_select_combines_criteria() -> None:
    """Kind, phase, role and name all have to hold."""
    where = select(
        two_kernels(), pattern="^g", kinds=("kernel",), phases=("forward",), roles=("compute",)
    )

    assert where.tolist() == [False, False, True, False]


def test_an_empty_selection_names_the_closest_names() -> None:
    """The error says what was looked for and what there is."""
    graph = two_kernels()
    where = select(graph, pattern="gemms")

    with pytest.raises(TransformError, match=r"no kernel 'gemms'.*closest names: gemm"):
        require(where, graph, "kernel 'gemms'", like="gemms")


def test_a_wrong_regular_expression_is_an_error() -> None:
    """The message carries what is wrong with it."""
    with pytest.raises(TransformError, match=r"pattern='\(' is no regular expression"):
        select(two_kernels(), pattern="(")


def test_an_operator_holds_what_is_inside_it() -> None:
    """A task belongs to its operator and to every operator around that."""
    graph = literal(
        [("a", "host", 0, 5, None), ("b", "host", 0, 5, None), ("c", "host", 0, 5, None)],
        columns={"operator": [1, 0, -1]},
        operators={"name": ["aten::item", "aten::_local"], "parent": [-1, 0]},
    )

    assert within_operator(graph, "item").tolist() == [True, True, False]
