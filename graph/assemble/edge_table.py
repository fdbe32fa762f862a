"""All edges of one rank's window, one function per cause."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from foretrace.graph.model import EDGE_COLUMNS, EDGE_KINDS
from foretrace.util.schema import table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from foretrace.graph.assemble.profiler_overhead import Overhead
    from foretrace.graph.assemble.selection import Selection
    from foretrace.graph.infer.loaders import Coupling
    from foretrace.graph.infer.rank import InferredRank
    from foretrace.graph.infer.threads import HostEdges

    Ints = NDArray[np.int64]


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
    causes = [edges for edges in _collect(rank, chosen, overhead) if len(edges.src)]
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
    for edges in rank.threads.edges:
        yield from _couple_threads(edges, rank, chosen)
    for coupling in rank.couplings:
        yield from _couple_loader(coupling, chosen)
    yield from _link_loads(rank, chosen)


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
    """Event synchronisations return after the task that was seen to release them."""
    waits = rank.waits
    calls = chosen.host[waits.event_task[chosen.host] >= 0]
    task = chosen.device_row[waits.event_task[calls]]
    calls, task = calls[task >= 0], task[task >= 0]
    return CauseEdges(task, chosen.host_row[calls], waits.return_ns[calls], "return", "event")


def _wait_between_streams(rank: InferredRank, chosen: Selection) -> Iterator[CauseEdges]:
    if rank.event_edges is None:
        return
    src, dst, recorded = rank.event_edges
    src, dst = chosen.device_row[src], chosen.device_row[dst]
    for rule, same in (("inferred", ~recorded), ("recorded", recorded)):
        here = same & (src >= 0) & (dst >= 0)
        yield CauseEdges(src[here], dst[here], 0, "event", rule)


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
