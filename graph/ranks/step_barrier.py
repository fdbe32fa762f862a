"""Ranks that begin each step at the same moment, although some were done long before: they wait.

In: all ranks, one below the other. Out: the same graph in which a rank begins its next step when
the last one may: the time that it waited is no work of its own. No recorded event says so (a
barrier on the host, the hand-over of the next batch); only that the moments coincide, every time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from foretrace.graph.model import EDGE_COLUMNS
from foretrace.util.schema import stack, table

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from foretrace.graph.model import Graph

    Ints = NDArray[np.int64]

TOGETHER_NS = 5_000
"""Step starts of ranks that wait for each other are closer than this."""
WAITED = 0.05
"""Share of a step by which a rank must be done before the last to count as waiting for it."""
SEVERAL = 3
"""Steps in which the moments must coincide: fewer may do so by chance."""
RULE = "step barrier"


def join_step_starts(graph: Graph) -> Graph:
    """Let the ranks of *graph* wait for each other where each step begins, if they did."""
    begins = _find_begins(graph)
    if begins is None or begins.shape[1] < SEVERAL:
        return graph
    start = graph.tasks["start_ns"].to_numpy()[begins]
    edge = _find_edges_into(graph, begins)
    if edge is None or (np.ptp(start, axis=0) > TOGETHER_NS).any():
        return graph
    lag = graph.edges["lag_ns"].to_numpy()[edge]
    least = lag.min(axis=0)
    waited = (lag - least).max(axis=0) > WAITED * graph.measured_step_ns
    if not waited.all():
        return graph
    lags = graph.edges["lag_ns"].to_numpy().copy()
    lags[edge] = least
    edges = graph.edges.assign(lag_ns=lags)
    note = (
        "the ranks begin every step together, though some are done earlier: they wait for the last"
    )
    return replace(
        graph,
        edges=stack([edges, _make_edges(graph, begins, edge, least)]),
        notes=(*graph.notes, note),
    )


def _find_begins(graph: Graph) -> Ints | None:
    """Return the task at which each step begins, [rank, step]; ``None`` unless all ranks have one.

    It is a marker: the first task of a step on the main thread, of length 0.
    """
    main = (graph.lanes["role"] == "main").to_numpy()
    lane = graph.tasks["lane"].to_numpy()
    start, length, step = (
        graph.tasks[column].to_numpy() for column in ("start_ns", "duration_ns", "step")
    )
    rows = np.flatnonzero(main[lane] & (step >= 0))
    rows = rows[np.lexsort((rows, start[rows], step[rows], lane[rows]))]
    fresh = np.ones(len(rows), bool)
    fresh[1:] = (lane[rows][1:] != lane[rows][:-1]) | (step[rows][1:] != step[rows][:-1])
    first = rows[fresh]
    ranks = int(main.sum())
    if len(first) != ranks * graph.steps or length[first].any():
        return None
    return first.reshape(ranks, graph.steps)


def _find_edges_into(graph: Graph, begins: Ints) -> Ints | None:
    """Return the thread edge that leads to each of *begins*; ``None`` unless each has one."""
    into = np.full(len(graph.tasks), -1, np.int64)
    on_thread = np.flatnonzero((graph.edges["kind"] == "thread").to_numpy())
    into[graph.edges["dst"].to_numpy()[on_thread]] = on_thread
    edge = into[begins]
    return edge if (edge >= 0).all() else None


def _make_edges(graph: Graph, begins: Ints, edge: Ints, least: Ints) -> pd.DataFrame:
    """Let each of *begins* follow what every other rank did before its own."""
    ranks, steps = begins.shape
    src, shift = (graph.edges[column].to_numpy()[edge] for column in ("src", "shift"))
    others = ~np.eye(ranks, dtype=bool)
    before, after = np.nonzero(others)
    values = {
        "src": src[before].ravel(),
        "dst": begins[after].ravel(),
        "kind": ["join"] * (len(before) * steps),
        "lag_ns": np.broadcast_to(least, (len(before), steps)).ravel(),
        "shift": shift[before].ravel(),
        "rule": [RULE] * (len(before) * steps),
    }
    return table(EDGE_COLUMNS, values, len(before) * steps)
