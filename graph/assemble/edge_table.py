"""All edges of one rank's window, one function per cause."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from foretrace.graph.assemble.event_returns import return_after_events
from foretrace.graph.infer.cuda_graphs.graph_launches import (
    find_late_returns,
    list_launches_with_graphs,
    pair_launches,
)
from foretrace.graph.model import EDGE_COLUMNS, EDGE_KINDS
from foretrace.util.schema import table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from foretrace.graph.assemble.profiler_overhead import Overhead
    from foretrace.graph.assemble.selection import Selection
    from foretrace.graph.infer.cuda_graphs.graph_branches import GraphBranches
    from foretrace.graph.infer.cuda_graphs.graph_launches import Launch
    from foretrace.graph.infer.loading.loaders import Coupling
    from foretrace.graph.infer.rank import InferredRank
    from foretrace.graph.infer.tasks.threads import HostEdges

    Ints = NDArray[np.int64]


UNTRACED = "untraced wait"
"""Rule of edges whose lag holds a wait that nothing recorded explains."""
HOLD_BACK = ("stream", "launch", "event")
"""Kinds of edges that say when a device task may start."""


class CauseEdges(NamedTuple):
    """Edges of one cause, in graph rows."""

    src: Ints
    dst: Ints
    lag_ns: Ints | int
    kind: str
    rule: str
    shift: Ints | int = 0


def make_edge_table(rank: InferredRank, chosen: Selection, overhead: Overhead) -> pd.DataFrame:
    """Collect the window's edges from every cause; the thread's own lags lose *overhead*."""
    collected = _keep_untraced(rank, chosen, _collect(rank, chosen, overhead))
    causes = [edges for edges in collected if len(edges.src)]
    counts = [len(edges.src) for edges in causes]

    def column(values: Sequence[Ints | int], dtype: type = np.int32) -> Any:
        whole: Any = np.empty(sum(counts), dtype)
        end = 0
        for value, count in zip(values, counts, strict=True):
            whole[end : end + count] = value
            end += count
        return whole

    def category(values: list[str], categories: list[str]) -> pd.Categorical:
        codes = column([categories.index(each) for each in values], np.int8)
        return pd.Categorical.from_codes(codes, categories)

    values = {
        "src": column([edges.src for edges in causes]),
        "dst": column([edges.dst for edges in causes]),
        "lag_ns": column([edges.lag_ns for edges in causes], np.int64),
        "shift": column([edges.shift for edges in causes]),
        "kind": category([edges.kind for edges in causes], list(EDGE_KINDS)),
        "rule": category([e.rule for e in causes], sorted({edges.rule for edges in causes})),
    }
    return table(EDGE_COLUMNS, values, sum(counts))


def _collect(rank: InferredRank, chosen: Selection, overhead: Overhead) -> Iterator[CauseEdges]:
    yield from _order_threads(rank, chosen, overhead)
    yield from _order_streams(rank, chosen)
    yield _link_launches(rank, chosen)
    yield _return_after_events(rank, chosen)
    yield from _wait_between_streams(rank, chosen)
    if rank.branches is not None:
        yield _wait_within_graphs(rank.branches, chosen)
        for lane, launches in list_launches_with_graphs(
            rank.devices, rank.host, chosen.device
        ).items():
            yield _wait_for_graphs(rank, chosen, launches)
            yield _return_after_graphs(rank, chosen, lane, launches)
    for edges in rank.threads.edges:
        yield from _couple_threads(edges, rank, chosen)
    for coupling in rank.couplings:
        yield from _couple_loader(coupling, chosen)
    yield from _link_loads(rank, chosen)


def _keep_untraced(
    rank: InferredRank, chosen: Selection, causes: Iterator[CauseEdges]
) -> Iterator[CauseEdges]:
    """Let tasks that waited for something untraced start as long after whatever else holds them."""
    wait = np.zeros(chosen.rows, np.int64)
    if rank.untraced is not None:
        wait[chosen.device_row[chosen.device]] = rank.untraced.wait_ns[chosen.device]
        src, dst = (chosen.device_row[end] for end in (rank.untraced.src, rank.untraced.dst))
        here = (src >= 0) & (dst >= 0)
        yield CauseEdges(
            src[here], dst[here], rank.untraced.lag_ns[here], "event", "untraced event"
        )
    for edges in causes:
        late = wait[edges.dst] > 0
        if edges.kind not in HOLD_BACK or not late.any():
            yield edges
            continue
        src, dst = edges.src, edges.dst
        lag, shift = (np.broadcast_to(each, len(dst)) for each in (edges.lag_ns, edges.shift))
        for rule, here in ((edges.rule, ~late), (UNTRACED, late)):
            kept = lag[here] + wait[dst[here]]
            yield CauseEdges(src[here], dst[here], kept, edges.kind, rule, shift[here])


def _begins_run(groups: Ints) -> NDArray[np.bool_]:
    """Tell which entries begin a run of equal *groups*."""
    first = np.ones(len(groups), bool)
    first[1:] = groups[1:] != groups[:-1]
    return first


def _order_threads(
    rank: InferredRank, chosen: Selection, overhead: Overhead
) -> Iterator[CauseEdges]:
    """Consecutive tasks of a thread; the lag is its untraced time, 0 where it waited."""
    host, window, rows = rank.host, rank.window, chosen.host
    waited = rank.threads.waited.copy()
    for coupling in rank.couplings:
        if coupling.kind != "join":
            waited[coupling.dst] = True
    own_gap = _measure_marker_gaps(rank)

    def own(pause: Ints, after: Ints, still: NDArray[np.bool_]) -> Ints:
        lag = np.clip(pause, 0, None)
        lag = np.where(own_gap[after] >= 0, np.minimum(lag, own_gap[after]), lag)
        return np.clip(np.where(still, 0, lag) - overhead.of(after), 0, None).astype(np.int64)

    first = _begins_run(host.thread[rows])
    before, after = rows[:-1][~first[1:]], rows[1:][~first[1:]]
    lag = own(host.start_ns[after] - host.end_ns[before], after, waited[after])
    yield CauseEdges(chosen.host_row[before], chosen.host_row[after], lag, "thread", "order")
    heads, tails = rows[first], rows[np.roll(first, -1)]
    seam = (window.end_ns - host.end_ns[tails]) + (host.start_ns[heads] - window.start_ns)
    still = waited[heads] | (host.thread[heads] != rank.threads.main)
    lag = own(seam, heads, still)
    yield CauseEdges(chosen.host_row[tails], chosen.host_row[heads], lag, "thread", "order", 1)


def _measure_marker_gaps(rank: InferredRank) -> Ints:
    """Per host task: what its thread itself spends before it when it need not wait; −1: all of it.

    Known for step markers that wait for a loader: the shortest pause seen, or the fetch's own cost.
    """
    own = np.full(len(rank.host), -1, np.int64)
    joins = [coupling for coupling in rank.couplings if coupling.kind == "join"]
    if joins and len(rank.markers) > 1:
        markers = rank.markers
        pause = rank.host.start_ns[markers[1:]] - rank.host.end_ns[markers[1:] - 1]
        own[markers] = max(int(pause.min()), 0)
    if rank.loads is not None:
        marks = rank.loads.consumer[rank.waits_at_marker]
        own[marks] = rank.loads.own_ns
        if len(marks):
            own[rank.markers[:1]] = rank.loads.own_ns
    return own


def _order_streams(rank: InferredRank, chosen: Selection) -> Iterator[CauseEdges]:
    """Consecutive tasks of a stream; the lag is the device's gap."""
    rows, lags = chosen.device, rank.stream_lags
    first = _begins_run(rank.devices.lane[rows])
    before, after = rows[:-1][~first[1:]], rows[1:][~first[1:]]
    heads, tails = rows[first], rows[np.roll(first, -1)]
    for src, dst, shift in ((before, after, 0), (tails, heads, 1)):
        src_row, dst_row = chosen.device_row[src], chosen.device_row[dst]
        yield CauseEdges(src_row, dst_row, lags[dst], "stream", "order", shift)


def _link_launches(rank: InferredRank, chosen: Selection) -> CauseEdges:
    linked = chosen.device[rank.devices.launch[chosen.device] >= 0]
    call = chosen.host_row[rank.devices.launch[linked]]
    rows = linked[call >= 0]
    lag = rank.launch_lags[rows]
    return CauseEdges(call[call >= 0], chosen.device_row[rows], lag, "launch", "correlation")


def _return_after_events(rank: InferredRank, chosen: Selection) -> CauseEdges:
    """Event synchronisations return after the last task before their event."""
    task, call, lag, shift = return_after_events(rank, chosen)
    return CauseEdges(task, call, lag, "return", "event", shift)


def _wait_between_streams(rank: InferredRank, chosen: Selection) -> Iterator[CauseEdges]:
    if rank.event_edges is None:
        return
    src, dst, recorded, _ = rank.event_edges
    src, dst = chosen.device_row[src], chosen.device_row[dst]
    for rule, same in (("inferred", ~recorded), ("recorded", recorded)):
        here = same & (src >= 0) & (dst >= 0)
        yield CauseEdges(src[here], dst[here], rank.event_lag, "event", rule)


def _wait_within_graphs(branches: GraphBranches, chosen: Selection) -> CauseEdges:
    src, dst = chosen.device_row[branches.src], chosen.device_row[branches.dst]
    here = (src >= 0) & (dst >= 0)
    return CauseEdges(src[here], dst[here], branches.lag_ns[here], "event", "graph branch")


def _wait_for_graphs(rank: InferredRank, chosen: Selection, launches: list[Launch]) -> CauseEdges:
    """Let what is launched into a stream after a graph wait for all of the graph's branches."""
    pairs = np.array([*pair_launches(rank.devices, launches)], np.int64).reshape(-1, 3)
    src, dst = chosen.device_row[pairs[:, 0]], chosen.device_row[pairs[:, 1]]
    return CauseEdges(src, dst, rank.stream_lags[pairs[:, 1]], "event", "graph end", pairs[:, 2])


def _return_after_graphs(
    rank: InferredRank, chosen: Selection, lane: int, launches: list[Launch]
) -> CauseEdges:
    """Let synchronisations of a stream wait for a graph's branches on other streams, too."""
    found = find_late_returns(rank.devices, rank.host, rank.waits, lane, launches)
    task, call = np.array([*found], np.int64).reshape(-1, 2).T
    inside = chosen.host_row[call] >= 0
    task, call = task[inside], call[inside]
    lag = rank.waits.return_ns[call]
    return CauseEdges(chosen.device_row[task], chosen.host_row[call], lag, "return", "graph end")


def _couple_threads(
    edges: HostEdges, rank: InferredRank, chosen: Selection
) -> Iterator[CauseEdges]:
    """Forks and joins; one into the marker that ends the window leads to the one that begins it."""
    starts = rank.host.start_ns[rank.markers]
    first = rank.markers[starts == rank.window.start_ns]
    last = rank.markers[starts == rank.window.end_ns]
    closing = np.isin(edges.dst, last) & (len(first) == len(last))
    dst = np.where(closing, first[0] if len(first) else -1, edges.dst)
    for name in np.unique(edges.kind).tolist():
        same = edges.kind == name
        a, b = chosen.host_row[edges.src[same]], chosen.host_row[dst[same]]
        inside = (a >= 0) & (b >= 0)
        shift = closing[same][inside].astype(np.int64)
        yield CauseEdges(a[inside], b[inside], edges.lag_ns[same][inside], name, edges.rule, shift)


def _couple_loader(coupling: Coupling, chosen: Selection) -> Iterator[CauseEdges]:
    """Hand-overs of a loader chain; those that leave the window come back a repetition later."""
    src = np.flatnonzero(chosen.host_row[coupling.src] >= 0)
    dst = np.flatnonzero(chosen.host_row[coupling.dst] >= 0)
    period = min(len(src), len(dst))
    if not period:
        return
    src = src[:period]
    ahead = src + coupling.offset - dst[0]
    shift = ahead // period
    target = dst[0] + ahead % period
    forward = shift >= 0
    yield CauseEdges(
        chosen.host_row[coupling.src[src[forward]]],
        chosen.host_row[coupling.dst[target[forward]]],
        coupling.lag_ns,
        coupling.kind,
        "loader unit",
        shift[forward],
    )


def _link_loads(rank: InferredRank, chosen: Selection) -> Iterator[CauseEdges]:
    """Batches arrive in order; the consumer starts when its batch is there."""
    rows = chosen.load_row[chosen.load]
    if rank.loads is None or not len(rows):
        return
    consumer = chosen.host_row[rank.loads.consumer[chosen.load]]
    lag = np.where(rank.waits_at_marker[chosen.load], rank.loads.own_ns, 0)
    yield CauseEdges(rows[:-1], rows[1:], 0, "thread", "loader")
    yield CauseEdges(rows[-1:], rows[:1], 0, "thread", "loader", 1)
    yield CauseEdges(rows, consumer, lag, "data", "loader wait")
