"""The definition of a valid graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from foretrace.errors import GraphError
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
from foretrace.schema import require

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from numpy.typing import NDArray


def check(graph: Graph) -> Graph:
    """Return *graph* if it holds every invariant.

    Raises
    ------
    GraphError
        Naming the column, task or edge that breaks one: missing columns, unknown categories, ids
        out of range, negative times, an edge that points at itself, order edges that branch or
        leave their lane, launches of something that is no device task.
    """
    require(graph.tasks, TASK_COLUMNS, GraphError, "tasks")
    require(graph.edges, EDGE_COLUMNS, GraphError, "edges")
    require(graph.lanes, LANE_COLUMNS, GraphError, "lanes")
    require(graph.operators, OPERATOR_COLUMNS, GraphError, "operators")
    tasks, edges = graph.tasks, graph.edges
    _known(tasks, "kind", TASK_KINDS)
    _known(tasks, "phase", PHASES)
    _known(tasks, "wait", WAITS)
    _known(tasks, "cost", COSTS)
    _known(edges, "kind", tuple(EDGE_KINDS))
    _known(graph.lanes, "kind", LANE_KINDS)
    _within(tasks, "lane", 0, len(graph.lanes))
    _within(tasks, "wait_lane", -1, len(graph.lanes))
    _within(tasks, "operator", -1, len(graph.operators))
    _within(tasks, "work_ns", 0, None)
    _within(tasks, "duration_ns", 0, None)
    _within(edges, "src", 0, len(tasks))
    _within(edges, "dst", 0, len(tasks))
    _within(edges, "shift", 0, None)
    if graph.steps < 1:
        raise GraphError(f"a graph has at least 1 step, not {graph.steps}")
    _edges(graph)
    return graph


def _known(frame: pd.DataFrame, column: str, values: Sequence[str]) -> None:
    found = frame[column].array
    if set(found.categories) <= set(values):
        return
    used = np.flatnonzero(np.bincount(found.codes.astype(np.int64) + 1)[1:])
    strange = [each for each in found.categories[used] if each not in values]
    if strange:
        raise GraphError(f"{column} {strange[0]!r} is unknown, expected one of {', '.join(values)}")


def _within(frame: pd.DataFrame, column: str, low: int, high: int | None) -> None:
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
