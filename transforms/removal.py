"""Take tasks out of a graph and close the gap they leave.

Everything that had to wait for a removed task waits for the one before it on the lane, and
everything a removed task waited for holds for the one after it: no new order arises.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from foretrace.graph.model import DEVICE_KINDS
from foretrace.transforms.columns import Mask, Rows, is_in
from foretrace.transforms.primitives import CHAINS, chain, edge_rows

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
    >>> from foretrace.transforms.literal import literal
    >>> chain3 = literal([(n, "host", 0, 5, None) for n in "abc"], lag_ns=2)
    >>> shorter = remove(chain3, np.array([False, True, False]))
    >>> shorter.edges[["src", "dst", "lag_ns"]].values.tolist()
    [[0, 1, 4]]
    """
    gone = _with_launches(graph, where)
    if not gone.any():
        return graph
    forward, backward = hops(graph, gone, gaps=gaps)
    edges = _moved(graph, gone, forward, backward)
    row = np.cumsum(~gone) - 1
    edges = edges.assign(
        src=row[edges["src"].to_numpy()].astype(np.int32),
        dst=row[edges["dst"].to_numpy()].astype(np.int32),
    )
    tasks = graph.tasks[~gone].reset_index(drop=True)
    return replace(graph, tasks=tasks, edges=edges.reset_index(drop=True))


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
    """Follow the chain by doubling until every hop lands on a kept task."""
    has = edge >= 0
    to = np.where(has, end[edge] if len(end) else -1, -1)
    lags = graph.edges["lag_ns"].to_numpy()
    shifts = graph.edges["shift"].to_numpy()
    lag = np.where(has, lags[edge] if len(lags) else 0, 0).astype(np.int64)
    shift = np.where(has, shifts[edge] if len(shifts) else 0, 0).astype(np.int64)
    device = is_in(graph.tasks["kind"], *DEVICE_KINDS)
    last = lag.copy()
    if gaps == "drop":
        lag[gone & has & gone[to]] = 0
    for _ in range(max(1, len(to)).bit_length() + 1):
        onward = (to >= 0) & gone[to]
        if not onward.any():
            break
        over = to[onward]
        lag[onward] += lag[over]
        shift[onward] += shift[over]
        last[onward] = last[over]
        to[onward] = to[over]
    to[(to >= 0) & gone[to]] = -1
    return Hops(to, np.where(device, last, lag), shift)


def _with_launches(graph: Graph, where: Mask) -> Mask:
    """Add the calls all of whose launched work is removed."""
    launch = is_in(graph.edges["kind"], "launch")
    src = graph.edges["src"].to_numpy()[launch]
    dst = graph.edges["dst"].to_numpy()[launch]
    count = len(graph.tasks)
    launched = np.bincount(src, minlength=count)
    removed = np.bincount(src[where[dst]], minlength=count)
    return where | ((launched > 0) & (launched == removed))


def _moved(graph: Graph, gone: Mask, forward: Hops, backward: Hops) -> pd.DataFrame:
    """Return the edges after the removal, ids unchanged: kept, moved to neighbours, bridged."""
    edges = graph.edges
    src, dst = (edges[c].to_numpy().astype(np.int64) for c in ("src", "dst"))
    is_chain = is_in(edges["kind"], *CHAINS)
    is_return = is_in(edges["kind"], "return")
    cut = gone[src] | gone[dst]
    moves = (
        cut & ~is_chain & ~(is_return & gone[dst]) & ~(is_in(edges["kind"], "launch") & gone[dst])
    )
    shift = edges["shift"].to_numpy().astype(np.int64)
    shift += np.where(gone[src], backward.shift[src], 0) + np.where(
        gone[dst], forward.shift[dst], 0
    )
    new_src = np.where(gone[src], backward.to[src], src)
    new_dst = np.where(gone[dst], forward.to[dst], dst)
    keep = ~cut | (moves & (new_src >= 0) & (new_dst >= 0) & ((new_src != new_dst) | (shift > 0)))
    kept = edges.assign(
        src=new_src.astype(np.int32), dst=new_dst.astype(np.int32), shift=shift.astype(np.int32)
    )[keep]
    return _bridged(graph, kept, gone, forward, is_chain & cut)


def _bridged(
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
