"""Each invariant of a graph, broken once: the error names what is wrong and where."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from foretrace.errors import GraphError
from foretrace.graph.build import build
from foretrace.graph.check import check
from tests.support.recordings.events import call, kernel, op, steps, sync, trace

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

ROWS = [op("aten::mm", 0, 20), call(5, 10, 1), kernel(15, 900, 1), sync(20, 920)]


@pytest.fixture(scope="module")
def graph() -> Graph:
    """Return marker 0, operator 1, launch 2, operator 3, sync 4, kernel 5; edges 0-4 thread."""
    return build(trace(steps(2, 1_000, ROWS)))


def changed(graph: Graph, table: str, column: str, row: int, value: Any) -> Graph:
    """Return *graph* with one cell changed; a text becomes a category."""
    frame = getattr(graph, table).copy()
    values = frame[column].astype(object) if isinstance(value, str) else frame[column].copy()
    values.iloc[row] = value
    frame[column] = values.astype("category") if isinstance(value, str) else values
    fields: dict[str, Any] = {table: frame}
    return replace(graph, **fields)


def test_valid_graph_is_returned(graph: Graph) -> None:
    """The same object, for use in a chain."""
    assert check(graph) is graph


@pytest.mark.parametrize(
    ("table", "column", "row", "value", "text"),
    [
        ("tasks", "kind", 1, "cpu", "kind 'cpu' is unknown, expected one of host, launch"),
        ("tasks", "phase", 1, "warm-up", "phase 'warm-up' is unknown"),
        ("tasks", "wait", 1, "all", "wait 'all' is unknown"),
        ("tasks", "cost", 1, "guess", "cost 'guess' is unknown"),
        ("edges", "kind", 1, "sync", "kind 'sync' is unknown"),
        ("lanes", "kind", 1, "core", "kind 'core' is unknown"),
        ("tasks", "lane", 3, 2, "row 3: lane is 2, out of range"),
        ("tasks", "lane", 3, -1, "row 3: lane is -1, out of range"),
        ("tasks", "wait_lane", 4, 9, "row 4: wait_lane is 9, out of range"),
        ("tasks", "operator", 1, 1, "row 1: operator is 1, out of range"),
        ("tasks", "work_ns", 5, -1, "row 5: work_ns is -1, out of range"),
        ("tasks", "duration_ns", 5, -1, "row 5: duration_ns is -1, out of range"),
        ("edges", "src", 0, 6, "row 0: src is 6, out of range"),
        ("edges", "dst", 0, -1, "row 0: dst is -1, out of range"),
        ("edges", "shift", 0, -1, "row 0: shift is -1, out of range"),
        ("edges", "dst", 1, 1, "task 1 has an edge to itself"),
        ("edges", "lag_ns", 2, -5, r"edge 2 \(thread\) has a negative lag; only return edges may"),
        ("edges", "dst", 3, 5, "edge 3 orders tasks of two lanes, 0 and 1"),
        ("edges", "src", 2, 1, "task 1 has several successors on its lane"),
        ("edges", "dst", 2, 2, "task 2 has an edge to itself"),
        ("edges", "dst", 3, 1, "task 1 has several predecessors on its lane"),
        ("edges", "dst", 6, 4, "edge 6 launches task 4, which is no device task, or from one"),
    ],
)
def test_broken_invariant_is_named(
    graph: Graph, table: str, column: str, row: int, value: Any, text: str
) -> None:
    """One cell of one table is wrong."""
    with pytest.raises(GraphError, match=text):
        check(changed(graph, table, column, row, value))


def test_return_edges_may_have_a_negative_lag(graph: Graph) -> None:
    """An upload's call returns before its copy ends."""
    launch = graph.edges.iloc[[6]]
    edges = launch.assign(
        src=launch["dst"], dst=launch["src"], lag_ns=-5, kind=pd.Categorical(["return"])
    )

    assert check(replace(graph, edges=edges)).edges["lag_ns"].tolist() == [-5]


def test_unused_category_is_no_offence(graph: Graph) -> None:
    """Only values that occur are checked."""
    tasks = graph.tasks.assign(kind=graph.tasks["kind"].cat.add_categories(["cpu"]))

    assert check(replace(graph, tasks=tasks)).tasks is tasks


def test_missing_column_is_named(graph: Graph) -> None:
    """A table made by hand may lack one."""
    with pytest.raises(GraphError, match="tasks lacks the column 'fill'"):
        check(replace(graph, tasks=graph.tasks.drop(columns="fill")))


def test_wrong_dtype_is_named(graph: Graph) -> None:
    """Times are integers."""
    with pytest.raises(GraphError, match="edges: column 'lag_ns' is float64, expected int64"):
        check(replace(graph, edges=graph.edges.astype({"lag_ns": "float64"})))


def test_graph_has_a_step(graph: Graph) -> None:
    """A period of no steps means nothing."""
    with pytest.raises(GraphError, match="at least 1 step, not 0"):
        check(replace(graph, steps=0))


def test_graph_without_edges_is_valid(graph: Graph) -> None:
    """Nothing depends on anything."""
    assert check(replace(graph, edges=graph.edges.iloc[:0])).edges.empty
