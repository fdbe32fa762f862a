"""The definition of a valid graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from foretrace.errors import GraphError
from foretrace.graph.check_network import check_network
from foretrace.graph.model import (
    COSTS,
    DEVICE_KINDS,
    EDGE_COLUMNS,
    EDGE_KINDS,
    LANE_COLUMNS,
    LANE_KINDS,
    OPERATOR_COLUMNS,
    PHASES,
    TASK_COLUMNS,
    TASK_KINDS,
    WAITS,
    Graph,
)
from foretrace.graph.network import network_of
from foretrace.util.schema import require

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from numpy.typing import NDArray


def check(graph: Graph, known: Graph | None = None) -> Graph:
    """Return *graph* if it holds every invariant.

    What it shares with *known*, a valid graph of which it is an edit, needs no second look.

    Raises
    ------
    GraphError
        Naming the column, task or edge that breaks one: missing columns, unknown categories, ids
        out of range, negative times, an edge that points at itself, order edges that branch or
        leave their lane, launches of something that is no device task, a route or a share of the
        network that makes no sense, a rank that never arrives at a collective of its group.
    """
    require(graph.tasks, TASK_COLUMNS, GraphError, "tasks")
    require(graph.edges, EDGE_COLUMNS, GraphError, "edges")
    require(graph.lanes, LANE_COLUMNS, GraphError, "lanes")
    require(graph.operators, OPERATOR_COLUMNS, GraphError, "operators")
    for table, column, values in _VALUES:
        _known(getattr(graph, table), column, values)
    as_many = known is not None and _as_many(graph, known)
    for table, column, low, limit in _RANGES:
        high = None if limit is None else len(getattr(graph, limit))
        old = getattr(known, table) if as_many else None
        _within(getattr(graph, table), column, low, high, old)
    if graph.steps < 1:
        raise GraphError(f"a graph has at least 1 step, not {graph.steps}")
    same_edges = known is not None and as_many and _same_edges(graph, known)
    if not same_edges:
        _edges(graph)
    network = network_of(graph)
    same_network = (
        same_edges
        and known is not None
        and graph.lanes is known.lanes
        and network is network_of(known)
    )
    if network is not None and not same_network:
        check_network(graph, network)
    return graph


_VALUES = (
    ("tasks", "kind", TASK_KINDS),
    ("tasks", "phase", PHASES),
    ("tasks", "wait", WAITS),
    ("tasks", "cost", COSTS),
    ("edges", "kind", tuple(EDGE_KINDS)),
    ("lanes", "kind", LANE_KINDS),
)
_RANGES = (
    ("tasks", "lane", 0, "lanes"),
    ("tasks", "wait_lane", -1, "lanes"),
    ("tasks", "operator", -1, "operators"),
    ("tasks", "work_ns", 0, None),
    ("tasks", "duration_ns", 0, None),
    ("edges", "src", 0, "tasks"),
    ("edges", "dst", 0, "tasks"),
    ("edges", "shift", 0, None),
)
"""Table, column, lowest value, and the table whose length limits it."""


def _as_many(graph: Graph, known: Graph) -> bool:
    return all(
        len(getattr(graph, table)) == len(getattr(known, table))
        for table in ("tasks", "lanes", "operators")
    )


def _same_edges(graph: Graph, known: Graph) -> bool:
    """Tell whether the edges, and what is asked of the tasks at their ends, are the same."""
    of_edges = (column.name for column in EDGE_COLUMNS if column.name != "rule")
    return all(shared(graph.edges[c], known.edges[c]) for c in of_edges) and all(
        shared(graph.tasks[c], known.tasks[c]) for c in ("lane", "kind")
    )


def shared(one: pd.Series, other: pd.Series) -> bool:
    """Tell whether two columns are the same values in the same memory, as unedited ones are."""
    values: list[NDArray[np.generic]] = []
    for column in (one, other):
        array = column.array
        values.append(np.asarray(array.codes if hasattr(array, "codes") else array))
    if hasattr(one.array, "codes") and one.array.categories is not other.array.categories:
        return False
    return bool(values[0].__array_interface__ == values[1].__array_interface__)


def _known(frame: pd.DataFrame, column: str, values: Sequence[str]) -> None:
    found = frame[column].array
    if set(found.categories) <= set(values):
        return
    used = np.flatnonzero(np.bincount(found.codes.astype(np.int64) + 1)[1:])
    strange = [each for each in found.categories[used] if each not in values]
    if strange:
        raise GraphError(f"{column} {strange[0]!r} is unknown, expected one of {', '.join(values)}")


def _within(
    frame: pd.DataFrame, column: str, low: int, high: int | None, known: pd.DataFrame | None
) -> None:
    if known is not None and shared(frame[column], known[column]):
        return
    values = frame[column].to_numpy()
    wrong = values < low if high is None else (values < low) | (values >= high)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise GraphError(f"row {row}: {column} is {values[row]}, out of range")


def _edges(graph: Graph) -> None:
    edges = graph.edges
    src, dst, shift, lag_ns = (edges[name].to_numpy() for name in ("src", "dst", "shift", "lag_ns"))
    same = np.flatnonzero(src == dst)
    for row in same[shift[same] == 0]:
        raise GraphError(f"task {src[row]} has an edge to itself")
    early = np.flatnonzero(lag_ns < 0)
    for row in early[~_is(edges["kind"], "return")[early]]:
        kind = edges["kind"].iloc[row]
        raise GraphError(f"edge {row} ({kind}) has a negative lag; only return edges may")
    lane = graph.tasks["lane"].to_numpy()
    order = np.flatnonzero(_is(edges["kind"], "thread", "stream"))
    for row in order[lane[src[order]] != lane[dst[order]]]:
        lanes = f"{lane[src[row]]} and {lane[dst[row]]}"
        raise GraphError(f"edge {row} orders tasks of two lanes, {lanes}")
    for name, ends in (("successors", src), ("predecessors", dst)):
        count = np.bincount(ends[order], minlength=1)
        if count.max() > 1:
            raise GraphError(f"task {int(np.argmax(count > 1))} has several {name} on its lane")
    on_device = _is(graph.tasks["kind"], *DEVICE_KINDS)
    launch = np.flatnonzero(_is(edges["kind"], "launch"))
    for row in launch[on_device[src[launch]] | ~on_device[dst[launch]]]:
        raise GraphError(
            f"edge {row} launches task {dst[row]}, which is no device task, or from one"
        )


def _is(column: pd.Series, *values: str) -> NDArray[np.bool_]:
    flags: NDArray[np.bool_] = np.append(column.array.categories.isin(values), [False])[
        column.array.codes
    ]
    return flags
