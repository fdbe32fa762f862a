"""The verbs every what-if is written in: scale, insert, rewire, reorder.

`remove` and `repeat` stand in files of their names. Each takes a graph and returns a
new one; ids are row numbers, inserted tasks come last, and the order on a lane stands in the
chain edges ("thread" on the host, "stream" on a device).
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from foretrace.errors import TransformError
from foretrace.graph.model import DEVICE_KINDS
from foretrace.transforms.edit.columns import NO_KERNEL, Mask, Rows, append, is_in, set_label
from foretrace.transforms.edit.select import launch_edges

if TYPE_CHECKING:
    import numpy.typing as npt
    import pandas as pd

    from foretrace.graph.model import Graph

CHAINS = ("thread", "stream")
ARRIVALS = ("fork", "join", "event", "data")
MOST_NS = 10**16
"""No change makes a window longer than this (115 days): a replay adds up many windows."""


def scale(graph: Graph, where: Mask, factor: float | npt.NDArray[Any], *, cost: str) -> Graph:
    """Multiply what the selected tasks cost.

    Parameters
    ----------
    graph
        The graph to change.
    where
        Which tasks.
    factor
        One factor, or one per task of the graph (read only where selected).
    cost
        Source of the new cost, one of `foretrace.graph.model.COSTS`.

    Raises
    ------
    TransformError
        If a factor is negative or not finite, or the work grows beyond `MOST_NS`.

    Examples
    --------
    >>> from foretrace.graph.literal import literal
    >>> graph = literal([("a", "kernel", 0, 10, None), ("b", "kernel", 0, 20, None)])
    >>> scale(graph, np.array([False, True]), 0.5, cost="user").tasks.work_ns.tolist()
    [10, 10]
    """
    factors = np.where(where, factor, 1.0)
    if not (np.isfinite(factors) & (factors >= 0)).all():
        raise TransformError("a task cannot cost less than nothing; use factors of at least 0")
    changed = factors != 1.0
    if not changed.any():
        return graph
    with np.errstate(over="ignore"):  # what is endless is refused
        work = whole_ns(graph.tasks["work_ns"].to_numpy() * factors)
    label = set_label(graph.tasks["cost"], changed, cost)
    return replace(graph, tasks=graph.tasks.assign(work_ns=work, cost=label))


def scale_lags(graph: Graph, where: Mask, factor: float) -> Graph:
    """Multiply the lag of the selected edges, such as the untraced time between host tasks."""
    if factor == 1.0 or not where.any():
        return graph
    lag = graph.edges["lag_ns"].to_numpy()
    with np.errstate(over="ignore"):
        scaled = whole_ns(np.where(where, lag * factor, lag))
    return replace(graph, edges=graph.edges.assign(lag_ns=scaled))


def whole_ns(times: npt.NDArray[Any]) -> Rows:
    """Return *times* as whole ns.

    Raises
    ------
    TransformError
        They add up to more than `MOST_NS`.

    Examples
    --------
    >>> whole_ns(np.array([1.6, 2.0])).tolist()
    [2, 2]
    """
    with np.errstate(over="ignore"):
        if not times.sum(dtype=np.float64) <= MOST_NS:
            raise TransformError(
                "the changed job would take more than 115 days; use a smaller change"
            )
    return np.rint(times).astype(np.int64)


def chain(graph: Graph) -> tuple[Rows, Rows]:
    """Return, per task, its incoming and its outgoing chain edge; −1 at the ends of a lane."""
    edges = np.flatnonzero(is_in(graph.edges["kind"], *CHAINS))
    incoming = np.full(len(graph.tasks), -1, np.int64)
    outgoing = incoming.copy()
    incoming[graph.edges["dst"].to_numpy()[edges]] = edges
    outgoing[graph.edges["src"].to_numpy()[edges]] = edges
    return incoming, outgoing


def insert(
    graph: Graph,
    anchors: Rows,
    *,
    place: str = "after",
    gap_ns: int | Rows | None = None,
    **columns: Any,
) -> tuple[Graph, Rows]:
    """Splice one new task beside each anchor, on the anchor's lane.

    Parameters
    ----------
    graph
        The graph to change.
    anchors
        Rows of tasks; one that occurs twice gets two new tasks, in the order given.
    place
        "after", or "before": then whatever made the anchor start late holds for the new task.
    gap_ns
        Lag between anchor and new task; by default 0 on the host, the device's gap on a stream.
        One per new task needs *anchors* in ascending order.
    **columns
        Task columns: ``name``, ``kind``, ``work_ns`` and ``cost`` at least. What is not given is
        the anchor's (lane, step, phase, module; the start, 1 ns earlier with "before", so that
        host order can be told) or unknown.

    Returns
    -------
    tuple
        The new graph and the rows of the new tasks, in the order of *anchors*.

    Examples
    --------
    >>> from foretrace.graph.literal import literal
    >>> graph = literal([("a", "kernel", 0, 10, None), ("b", "kernel", 0, 20, None)])
    >>> new, rows = insert(
    ...     graph, np.array([0]), name="cast", kind="kernel", work_ns=3, cost="prior"
    ... )
    >>> new.edges[["src", "dst"]].values.tolist(), rows.tolist()
    ([[2, 1], [0, 2]], [2])
    """
    count = len(graph.tasks)
    rows = count + np.arange(len(anchors), dtype=np.int64)
    if "work_ns" in columns:
        whole_ns(np.broadcast_to(columns["work_ns"], len(anchors)))
    unknown = {"duration_ns": 0, "operator": -1, "bytes": np.nan, **NO_KERNEL}
    quiet = {"wait": "none", "wait_lane": -1, "return_ns": 0, "lock": -1}
    start = graph.tasks["start_ns"].to_numpy()[anchors] - int(place == "before")
    tasks = append(graph.tasks, anchors, {**unknown, **quiet, "start_ns": start, **columns})
    order = np.argsort(anchors, kind="stable")
    at, new = anchors[order], rows[order]
    first = np.append(True, at[1:] != at[:-1])[: len(at)]
    last = np.append(at[1:] != at[:-1], True)[: len(at)]
    incoming, outgoing = chain(graph)
    edges = graph.edges
    if place == "after":
        src = np.where(first, at, np.roll(new, 1))
        edges = _redirect_edges(edges, "src", outgoing[at[last]], new[last])
        links = src, new
    else:
        dst = np.where(last, at, np.roll(new, -1))
        edges = _redirect_edges(edges, "dst", incoming[at[first]], new[first])
        edges = _redirect_arrivals(edges, at[first], new[first])
        links = new, dst
    device = columns["kind"] in DEVICE_KINDS
    lag = graph.platform.gap_ns.get(("kernel", "kernel"), 0) if device else 0
    edges = edge_rows(
        edges, *links, "stream" if device else "thread", lag if gap_ns is None else gap_ns
    )
    return replace(graph, tasks=tasks, edges=edges), rows


def insert_kernels(
    graph: Graph, kernels: Rows, *, place: str = "after", **columns: Any
) -> tuple[Graph, Rows]:
    """Splice one new kernel beside each kernel, and its launch beside that kernel's launch.

    A call that launched several tasks (a CUDA graph) launches the new kernel as well.
    """
    launched_by = launch_edges(graph)[kernels]
    is_launched = launched_by >= 0
    edges = launched_by[is_launched]
    call = graph.edges["src"].to_numpy()[edges].astype(np.int64)
    lag, shift = (graph.edges[name].to_numpy()[edges] for name in ("lag_ns", "shift"))
    launches = np.bincount(
        graph.edges["src"].to_numpy()[is_in(graph.edges["kind"], "launch")],
        minlength=len(graph.tasks),
    )
    alone = launches[call] == 1
    new_call = call.copy()
    graph, rows = insert(graph, kernels, place=place, kind="kernel", **columns)
    if alone.any():
        names = graph.tasks["name"].cat
        launch_names = names.categories[names.codes.to_numpy()[call[alone]]]
        graph, new_call[alone] = insert(
            graph,
            call[alone],
            place=place,
            kind="launch",
            name=str(launch_names[0]),
            work_ns=graph.platform.launch_ns,
            cost="prior",
        )
    linked = edge_rows(graph.edges, new_call, rows[is_launched], "launch", lag, shift)
    return replace(graph, edges=linked), rows


def rewire(graph: Graph, drop: Mask, add: pd.DataFrame | None = None) -> Graph:
    """Drop the edges selected by *drop*; add the rows of *add* (columns of the edge table)."""
    edges = graph.edges[~drop].reset_index(drop=True)
    if add is not None:
        for kind in add["kind"].unique():
            part = add[add["kind"] == kind]
            columns = (part[c].to_numpy() for c in ("lag_ns", "shift"))
            edges = edge_rows(edges, part["src"], part["dst"], str(kind), *columns)
    return replace(graph, edges=edges)


def reorder(graph: Graph, rows: Rows) -> Graph:
    """Run *rows*, which follow one another on one lane, in the order given.

    Each task keeps the lag that followed it.

    Raises
    ------
    TransformError
        If *rows* do not follow one another on one lane within a window.
    """
    incoming, outgoing = chain(graph)
    src, dst, shift = (graph.edges[c].to_numpy() for c in ("src", "dst", "shift"))
    chosen = np.zeros(len(graph.tasks), bool)
    chosen[rows] = True
    into, out = incoming[rows], outgoing[rows]
    enters = into[(into < 0) | ~chosen[src[into]] | (shift[into] != 0)]
    leaves = out[(out < 0) | ~chosen[dst[out]] | (shift[out] != 0)]
    if len(rows) == 0 or len(enters) != 1 or len(leaves) != 1:
        raise TransformError(f"tasks {rows.tolist()[:5]} do not follow one another on one lane")
    after = int(dst[leaves[0]]) if leaves[0] >= 0 else -1
    new_src, new_dst = src.copy(), dst.copy()
    inner = out != leaves[0]
    spare = out[~inner][out[~inner] >= 0]
    free = [int(edge) for edge in out[inner]]
    if enters[0] >= 0:
        new_dst[enters[0]] = rows[0]
    if after >= 0:
        new_src[spare[0]] = rows[-1]
    for edge, (a, b) in zip(free, pairwise(rows), strict=True):
        new_src[edge], new_dst[edge] = a, b
    return replace(graph, edges=graph.edges.assign(src=new_src, dst=new_dst))


def edge_rows(
    edges: pd.DataFrame, src: Any, dst: Any, kind: str, lag_ns: Any, shift: Any = 0
) -> pd.DataFrame:
    """Return *edges* with one more edge per entry of *src* and *dst*."""
    if not len(src):
        return edges
    values = {"src": src, "dst": dst, "kind": kind, "lag_ns": lag_ns, "shift": shift}
    return append(edges, np.zeros(len(src), np.int64), {**values, "rule": "transform"})


def _redirect_edges(edges: pd.DataFrame, end: str, which: Rows, to: Rows) -> pd.DataFrame:
    """Return *edges* with the *end* of the edges *which* (−1: none) moved to the tasks *to*."""
    moved = edges[end].to_numpy().copy()
    moved[which[which >= 0]] = to[which >= 0]
    return edges.assign(**{end: moved})


def _redirect_arrivals(edges: pd.DataFrame, anchors: Rows, to: Rows) -> pd.DataFrame:
    """Return *edges* with whatever *anchors* waited for arriving at *to* instead."""
    dst = edges["dst"].to_numpy()
    target = np.full(max(int(dst.max(initial=0)), int(anchors.max(initial=0))) + 1, -1, np.int64)
    target[anchors] = to
    where = is_in(edges["kind"], *ARRIVALS) & (target[dst] >= 0)
    return edges.assign(dst=np.where(where, target[dst], dst).astype(dst.dtype))
