"""Several ranks of which one step was recorded: no period shows, but when each of them began does.

In: all ranks, one below the other. Out: a graph whose repetition is the recorded window, from the
first start to the last end: once every rank has finished, each begins as late as it did.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from foretrace.graph.model import EDGE_COLUMNS, LANE_COLUMNS, TASK_COLUMNS
from foretrace.util.schema import stack, table

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import pandas as pd
    from numpy.typing import NDArray

    from foretrace.graph.model import Graph

    Ints = NDArray[np.int64]

LATE = "late start"
"""Rule of the edges whose lag is how much later than the first rank another one begins."""
AGAIN = "every rank has finished"
"""Name of the task at which a repetition ends."""


def repeat_window(joined: Graph, graphs: Sequence[Graph]) -> Graph:
    """Let *joined*, the *graphs* of several ranks, repeat the window in which all were recorded."""
    began = np.array([_find_first_start(graph) for graph in graphs])
    ended = np.array(
        [max(at + graph.state.host_period_ns, _find_device_end(graph))
         for at, graph in zip(began, graphs, strict=True)]
    )  # fmt: skip
    if len(set(began)) == 1:
        return joined
    whole = float(ended.max() - began.min())
    ranks = [int(graph.lanes["rank"].iloc[0]) for graph in graphs]
    first, last = ranks[began.argmin()], ranks[began.argmax()]
    note = (
        f"the ranks began their only step up to {np.ptp(began) / 1e6:.1f} ms apart, rank {first} "
        f"first, rank {last} last: every repetition keeps that"
    )
    late = dict(zip(ranks, (began - began.min()).tolist(), strict=True))
    return replace(
        _start_over(joined, late),
        measured_step_ns=whole,
        step_samples_ns=(round(whole),),
        notes=(*joined.notes, note),
    )


def begin_together(graph: Graph, kept: Collection[int] = ()) -> Graph:
    """Return *graph* with all ranks beginning their step at once, but for the ranks *kept*.

    A graph in which no rank begins late is returned as it is.
    """
    edges = graph.edges
    late = ((edges["rule"] == LATE) & (edges["kind"] == "fork")).to_numpy()
    rank = graph.lanes["rank"].to_numpy()[graph.tasks["lane"].to_numpy()]
    late = late & ~np.isin(rank[edges["dst"].to_numpy()], list(kept))
    if not late.any():
        return graph
    return replace(graph, edges=edges.assign(lag_ns=edges["lag_ns"].mask(late, 0)))


def _is_on(graph: Graph, kind: str) -> NDArray[np.bool_]:
    """Tell which tasks are on lanes of *kind*."""
    lanes: NDArray[np.bool_] = (graph.lanes["kind"] == kind).to_numpy(bool)
    return lanes[graph.tasks["lane"].to_numpy()]


def _find_first_start(graph: Graph) -> int:
    """Return when the step begins on the host; on the device where there is no host."""
    host, start = _is_on(graph, "thread"), graph.tasks["start_ns"].to_numpy()
    return int(start[host].min() if host.any() else start.min())


def _find_device_end(graph: Graph) -> int:
    device = graph.tasks[_is_on(graph, "stream")]
    return int((device["start_ns"] + device["duration_ns"]).max()) if len(device) else 0


def _start_over(graph: Graph, late: dict[int, int]) -> Graph:
    """Insert a task that waits for the end of all lanes, and with which all ranks begin again."""
    lane = graph.tasks["lane"].to_numpy()
    edges = graph.edges
    own = _is_on(graph, "thread") | _is_on(graph, "stream")
    wraps = edges[(edges["shift"] > 0) & edges["kind"].isin(["thread", "stream"])]
    wraps = wraps[own[wraps["dst"]]]
    src, dst, lag = (wraps[name].to_numpy() for name in ("src", "dst", "lag_ns"))
    main = (graph.lanes["role"] == "main").to_numpy()[lane[dst]]
    rank = graph.lanes["rank"].to_numpy()[lane[dst]]
    heads = main | ~np.isin(rank, rank[main])
    restart = len(graph.tasks)
    waits = np.array([late[number] for number in rank[heads].tolist()], np.int64)
    joins = _make_edges(src, np.full(len(src), restart), "join", np.where(main, lag, 0), 0)
    forks = _make_edges(np.full(len(waits), restart), dst[heads], "fork", waits, 1)
    return replace(
        graph,
        tasks=stack([graph.tasks, _make_barrier(graph)]),
        lanes=stack([graph.lanes, _make_lane(len(graph.lanes))]),
        edges=stack([edges, joins, forks]),
    )


def _make_barrier(graph: Graph) -> pd.DataFrame:
    values = {
        "name": [AGAIN],
        "kind": ["sync"],
        "lane": [len(graph.lanes)],
        "start_ns": [int((graph.tasks["start_ns"] + graph.tasks["duration_ns"]).max())],
        "duration_ns": [0],
        "work_ns": [0],
        "step": [0],
        "wait": ["none"],
        "return_ns": [0],
        "lock": [0],
        "cost": ["recorded"],
    }
    return table(TASK_COLUMNS, values, 1)


def _make_lane(number: int) -> pd.DataFrame:
    values = {"kind": ["link"], "rank": [0], "device": [-1], "id": [number], "role": ["other"]}
    return table(LANE_COLUMNS, values, 1)


def _make_edges(src: Ints, dst: Ints, kind: str, lag: Ints, shift: int) -> pd.DataFrame:
    values = {
        "src": src,
        "dst": dst,
        "kind": [kind] * len(src),
        "lag_ns": lag,
        "shift": np.full(len(src), shift),
        "rule": [LATE] * len(src),
    }
    return table(EDGE_COLUMNS, values, len(src))
