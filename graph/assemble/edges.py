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
    from foretrace.graph.infer.loaders import Chain
    from foretrace.graph.infer.rank import InferredRank
    from foretrace.graph.infer.threads import HostEdges

    Ints = NDArray[np.int64]


class Some(NamedTuple):
    """Edges of one cause, in graph rows."""

    src: Ints
    dst: Ints
    lag_ns: Ints | int
    kind: str
    rule: str
    shift: Ints | int = 0


def edge_table(rank: InferredRank, chosen: Selection, overhead: Overhead) -> pd.DataFrame:
    """Collect the window's edges from every cause; the thread's own lags lose *overhead*."""
    found = [edges for edges in _causes(rank, chosen, overhead) if len(edges.src)]
    counts = [len(edges.src) for edges in found]

    def column(values: Sequence[Ints | int], dtype: type = np.int32) -> Any:
        whole: Any = np.empty(sum(counts), dtype)
        end = 0
        for value, count in zip(values, counts, strict=True):
            whole[end : end + count] = value
            end += count
        return whole

    def category(values: list[str], known: list[str]) -> pd.Categorical:
        codes = column([known.index(each) for each in values], np.int8)
        return pd.Categorical.from_codes(codes, known)

    values = {
        "src": column([edges.src for edges in found]),
        "dst": column([edges.dst for edges in found]),
        "lag_ns": column([edges.lag_ns for edges in found], np.int64),
        "shift": column([edges.shift for edges in found]),
        "kind": category([edges.kind for edges in found], list(EDGE_KINDS)),
        "rule": category([e.rule for e in found], sorted({edges.rule for edges in found})),
    }
    return table(EDGE_COLUMNS, values, sum(counts))


def _causes(rank: InferredRank, chosen: Selection, overhead: Overhead) -> Iterator[Some]:
    yield from _thread_order(rank, chosen, overhead)
    yield from _stream_order(rank, chosen)
    yield _launches(rank, chosen)
    yield _event_returns(rank, chosen)
    yield from _streams_waiting(rank, chosen)
    for edges in rank.threads.edges:
        yield from _between_threads(edges, rank, chosen)
    for chain in rank.chains:
        yield from _around(chain, chosen)
    yield from _loads(rank, chosen)


def _first_of(groups: Ints) -> NDArray[np.bool_]:
    """Tell which entries begin a run of equal *groups*."""
    first = np.ones(len(groups), bool)
    first[1:] = groups[1:] != groups[:-1]
    return first


def _thread_order(rank: InferredRank, chosen: Selection, overhead: Overhead) -> Iterator[Some]:
    """Consecutive tasks of a thread; the lag is its untraced time, 0 where it waited."""
    host, window, rows = rank.host, rank.window, chosen.host
    waited = rank.threads.waited.copy()
    for chain in rank.chains:
        if chain.kind != "join":
            waited[chain.dst] = True
    own_gap = _marker_gaps(rank)

    def own(pause: Ints, after: Ints, still: NDArray[np.bool_]) -> Ints:
        lag = np.clip(pause, 0, None)
        lag = np.where(own_gap[after] >= 0, np.minimum(lag, own_gap[after]), lag)
        return np.clip(np.where(still, 0, lag) - overhead.of(after), 0, None).astype(np.int64)

    first = _first_of(host.thread[rows])
    before, after = rows[:-1][~first[1:]], rows[1:][~first[1:]]
    lag = own(host.start_ns[after] - host.end_ns[before], after, waited[after])
    yield Some(chosen.host_row[before], chosen.host_row[after], lag, "thread", "order")
    heads, tails = rows[first], rows[np.roll(first, -1)]
    seam = (window.end_ns - host.end_ns[tails]) + (host.start_ns[heads] - window.start_ns)
    still = waited[heads] | (host.thread[heads] != rank.threads.main)
    lag = own(seam, heads, still)
    yield Some(chosen.host_row[tails], chosen.host_row[heads], lag, "thread", "order", 1)


def _marker_gaps(rank: InferredRank) -> Ints:
    """Per host task: what its thread itself spends before it when it need not wait; −1: all of it.

    Known for step markers that wait for a loader: the shortest pause seen, or the fetch's own cost.
    """
    own = np.full(len(rank.host), -1, np.int64)
    joins = [chain for chain in rank.chains if chain.kind == "join"]
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


def _stream_order(rank: InferredRank, chosen: Selection) -> Iterator[Some]:
    """Consecutive tasks of a stream; the lag is the device's gap."""
    rows, lags = chosen.device, rank.stream_lags
    first = _first_of(rank.devices.lane[rows])
    before, after = rows[:-1][~first[1:]], rows[1:][~first[1:]]
    heads, tails = rows[first], rows[np.roll(first, -1)]
    for src, dst, shift in ((before, after, 0), (tails, heads, 1)):
        src_row, dst_row = chosen.device_row[src], chosen.device_row[dst]
        yield Some(src_row, dst_row, lags[dst], "stream", "order", shift)


def _launches(rank: InferredRank, chosen: Selection) -> Some:
    linked = chosen.device[rank.devices.launch[chosen.device] >= 0]
    call = chosen.host_row[rank.devices.launch[linked]]
    rows = linked[call >= 0]
    lag = rank.launch_lags[rows]
    return Some(call[call >= 0], chosen.device_row[rows], lag, "launch", "correlation")


def _event_returns(rank: InferredRank, chosen: Selection) -> Some:
    """Event synchronisations return after the task that was seen to release them."""
    waits = rank.waits
    calls = chosen.host[waits.event_task[chosen.host] >= 0]
    task = chosen.device_row[waits.event_task[calls]]
    calls, task = calls[task >= 0], task[task >= 0]
    return Some(task, chosen.host_row[calls], waits.return_ns[calls], "return", "event")


def _streams_waiting(rank: InferredRank, chosen: Selection) -> Iterator[Some]:
    if rank.event_edges is None:
        return
    src, dst, recorded = rank.event_edges
    src, dst = chosen.device_row[src], chosen.device_row[dst]
    for rule, same in (("inferred", ~recorded), ("recorded", recorded)):
        here = same & (src >= 0) & (dst >= 0)
        yield Some(src[here], dst[here], 0, "event", rule)


def _between_threads(edges: HostEdges, rank: InferredRank, chosen: Selection) -> Iterator[Some]:
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
        yield Some(a[inside], b[inside], edges.lag_ns[same][inside], name, edges.rule, shift)


def _around(chain: Chain, chosen: Selection) -> Iterator[Some]:
    """Hand-overs of a loader chain; those that leave the window come back a repetition later."""
    src = np.flatnonzero(chosen.host_row[chain.src] >= 0)
    dst = np.flatnonzero(chosen.host_row[chain.dst] >= 0)
    period = min(len(src), len(dst))
    if not period:
        return
    src = src[:period]
    ahead = src + chain.offset - dst[0]
    shift = ahead // period
    target = dst[0] + ahead % period
    forward = shift >= 0
    yield Some(
        chosen.host_row[chain.src[src[forward]]],
        chosen.host_row[chain.dst[target[forward]]],
        chain.lag_ns,
        chain.kind,
        "loader unit",
        shift[forward],
    )


def _loads(rank: InferredRank, chosen: Selection) -> Iterator[Some]:
    """Batches arrive in order; the consumer starts when its batch is there."""
    rows = chosen.load_row[chosen.load]
    if rank.loads is None or not len(rows):
        return
    consumer = chosen.host_row[rank.loads.consumer[chosen.load]]
    lag = np.where(rank.waits_at_marker[chosen.load], rank.loads.own_ns, 0)
    yield Some(rows[:-1], rows[1:], 0, "thread", "loader")
    yield Some(rows[-1:], rows[:1], 0, "thread", "loader", 1)
    yield Some(rows, consumer, lag, "data", "loader wait")
