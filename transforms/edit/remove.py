"""Take tasks out of a graph and close the gap they leave.

Everything that had to wait for a removed task waits for the one before it on the lane, and
everything a removed task waited for holds for the one after it: no new order arises.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

from foretrace.graph.model import DEVICE_KINDS
from foretrace.transforms.edit.columns import Mask, Rows, is_in, take_rows
from foretrace.transforms.edit.primitives import CHAINS, chain, edge_rows

if TYPE_CHECKING:
    import numpy.typing as npt
    import pandas as pd

    from foretrace.graph.model import Graph

    Ints = npt.NDArray[np.int64]


def remove(graph: Graph, where: Mask, *, gaps: str = "keep") -> Graph:
    """Remove the selected tasks, and the calls that launched nothing else.

    Parameters
    ----------
    graph
        The graph to change.
    where
        Which tasks, on host or device.
    gaps
        What becomes of untraced host time between removed tasks: "keep" it, or "drop" it when a
        whole loop goes, whose Python time goes with it (the time before and after it stays).

    Examples
    --------
    >>> from foretrace.graph.literal import literal
    >>> chain3 = literal([(n, "host", 0, 5, None) for n in "abc"], lag_ns=2)
    >>> shorter = remove(chain3, np.array([False, True, False]))
    >>> shorter.edges[["src", "dst", "lag_ns"]].values.tolist()
    [[0, 1, 4]]
    """
    gone = _with_launches(graph, where)
    if not gone.any():
        return graph
    forward, backward = hops(graph, gone, gaps=gaps)
    edges = _move_edges(graph, gone, forward, backward)
    row = np.cumsum(~gone) - 1
    edges = edges.assign(
        src=row[edges["src"].to_numpy()].astype(np.int32),
        dst=row[edges["dst"].to_numpy()].astype(np.int32),
    )
    return replace(graph, tasks=take_rows(graph.tasks, ~gone), edges=edges)


@dataclass(frozen=True)
class Hops:
    """Per task, the nearest kept task in one direction of its lane; −1 where there is none."""

    to: Rows
    lag_ns: Ints
    shift: Ints


def hops(graph: Graph, gone: Mask, *, gaps: str = "keep") -> tuple[Hops, Hops]:
    """Return the nearest kept task after, and before, each task along its lane."""
    incoming, outgoing = chain(graph)
    dst, src = (graph.edges[c].to_numpy().astype(np.int64) for c in ("dst", "src"))
    return _hop(graph, gone, outgoing, dst, gaps), _hop(graph, gone, incoming, src, gaps)


def _hop(graph: Graph, gone: Mask, edge: Rows, end: Rows, gaps: str) -> Hops:
    """Follow the chain from every task to the nearest kept one."""
    lags, shifts = (graph.edges[c].to_numpy().astype(np.int64) for c in ("lag_ns", "shift"))
    to, lag, shift, last = _landings(gone, edge, end, lags, shifts, np.bool_(gaps == "drop"))
    device = is_in(graph.tasks["kind"], *DEVICE_KINDS)
    return Hops(to, np.where(device, last, lag), shift)


@njit(cache=True)
def _landings(
    gone: Mask, edge: Rows, end: Rows, lags: Ints, shifts: Ints, drop: np.bool_
) -> tuple[Rows, Ints, Ints, Ints]:
    """Return where each hop lands, its lag and shift in all, and the lag of its last edge.

    With *drop* the lag between two removed tasks counts nothing in all.
    """
    count = len(gone)
    to, lag = np.full(count, -1, np.int64), np.zeros(count, np.int64)
    shift, last = np.zeros(count, np.int64), np.zeros(count, np.int64)
    is_settled = ~gone
    stack = np.empty(count, np.int64)
    for begin in range(count):
        size, v = 0, begin
        while v == begin or (v >= 0 and not is_settled[v]):
            is_settled[v] = True
            stack[size] = v
            size += 1
            v = end[edge[v]] if edge[v] >= 0 else -1
            if v == begin:
                break
        while size > 0:
            size -= 1
            u = stack[size]
            if edge[u] < 0:
                continue
            over = end[edge[u]]
            lag[u] = last[u] = lags[edge[u]]
            shift[u] = shifts[edge[u]]
            if not gone[over]:
                to[u] = over
                continue
            if drop and gone[u]:
                lag[u] = 0
            to[u], last[u] = to[over], last[over]
            lag[u] += lag[over]
            shift[u] += shift[over]
    return to, lag, shift, last


def _with_launches(graph: Graph, where: Mask) -> Mask:
    """Add the calls all of whose launched work is removed."""
    launch = is_in(graph.edges["kind"], "launch")
    src = graph.edges["src"].to_numpy()[launch]
    dst = graph.edges["dst"].to_numpy()[launch]
    count = len(graph.tasks)
    launched = np.bincount(src, minlength=count)
    removed = np.bincount(src[where[dst]], minlength=count)
    return where | ((launched > 0) & (launched == removed))


def _move_edges(graph: Graph, gone: Mask, forward: Hops, backward: Hops) -> pd.DataFrame:
    """Return the edges after the removal, ids unchanged: kept, moved to neighbours, bridged."""
    edges = graph.edges
    src, dst = (edges[c].to_numpy().astype(np.int64) for c in ("src", "dst"))
    cut = gone[src] | gone[dst]
    ends = is_in(edges["kind"], *CHAINS) | (is_in(edges["kind"], "return", "launch") & gone[dst])
    shift = edges["shift"].to_numpy().astype(np.int64)
    at_src, at_dst = (np.flatnonzero(gone[end]) for end in (src, dst))
    new_src, new_dst = src.copy(), dst.copy()
    new_src[at_src] = backward.to[src[at_src]]
    new_dst[at_dst] = forward.to[dst[at_dst]]
    shift[at_src] += backward.shift[src[at_src]]
    shift[at_dst] += forward.shift[dst[at_dst]]
    lands = (new_src >= 0) & (new_dst >= 0) & ((new_src != new_dst) | (shift > 0))
    kept = take_rows(
        edges.assign(
            src=new_src.astype(np.int32), dst=new_dst.astype(np.int32), shift=shift.astype(np.int32)
        ),
        ~cut | (~ends & lands),
    )
    return _bridge_gaps(graph, kept, gone, forward, is_in(edges["kind"], *CHAINS) & cut)


def _bridge_gaps(
    graph: Graph, kept: pd.DataFrame, gone: Mask, forward: Hops, cut: Mask
) -> pd.DataFrame:
    """Add the chain edges that jump over what was removed."""
    src = graph.edges["src"].to_numpy()
    kinds = graph.edges["kind"]
    for kind in CHAINS:
        start = src[cut & is_in(kinds, kind) & ~gone[src]].astype(np.int64)
        start = start[forward.to[start] >= 0]
        values: tuple[Any, ...] = (forward.lag_ns[start], forward.shift[start])
        kept = edge_rows(kept, start, forward.to[start], kind, *values)
    return kept
