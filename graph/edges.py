"""All edges of one rank's window, one function per cause."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from foretrace.graph.model import EDGE_COLUMNS, EDGE_KINDS
from foretrace.schema import table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from foretrace.graph.assemble import Parts, Selection
    from foretrace.graph.deflate import Overhead
    from foretrace.graph.loaders import Chain
    from foretrace.graph.threads import HostEdges

    Ints = NDArray[np.int64]


class Some(NamedTuple):
    """Edges of one cause, in graph rows."""

    src: Ints
    dst: Ints
    lag_ns: Ints | int
    kind: str
    rule: str
    shift: Ints | int = 0


def edge_table(parts: Parts, chosen: Selection, overhead: Overhead | None) -> pd.DataFrame:
    """Collect the window's edges from every cause."""
    found = [e for e in _causes(parts, chosen, overhead) if len(e.src)]
    rows = sum(len(e.src) for e in found)
    rules = sorted({e.rule for e in found})

    def spread(value: Ints | int, count: int) -> Ints:
        return np.broadcast_to(np.asarray(value, np.int64), count)

    kinds = list(EDGE_KINDS)
    values = {
        "src": np.concatenate([e.src for e in found]) if found else [],
        "dst": np.concatenate([e.dst for e in found]) if found else [],
        "lag_ns": np.concatenate([spread(e.lag_ns, len(e.src)) for e in found]) if found else [],
        "shift": np.concatenate([spread(e.shift, len(e.src)) for e in found]) if found else [],
        "kind": pd.Categorical.from_codes(
            np.repeat([kinds.index(e.kind) for e in found], [len(e.src) for e in found]).astype(int), kinds
        ),
        "rule": pd.Categorical.from_codes(
            np.repeat([rules.index(e.rule) for e in found], [len(e.src) for e in found]).astype(int), rules
        ),
    }
    return table(EDGE_COLUMNS, values, rows)


def _causes(parts: Parts, chosen: Selection, overhead: Overhead | None) -> Iterator[Some]:
    yield from _thread_order(parts, chosen, overhead)
    yield from _stream_order(parts, chosen)
    yield _launches(parts, chosen)
    yield _event_returns(parts, chosen)
    yield from _streams_waiting(parts, chosen)
    for edges in parts.threads.edges:
        yield from _between_threads(edges, parts, chosen)
    for chain in parts.chains:
        yield from _around(chain, chosen)
    yield from _loads(parts, chosen)


def _thread_order(parts: Parts, chosen: Selection, overhead: Overhead | None) -> Iterator[Some]:
    """Consecutive tasks of a thread; the lag is its untraced time, 0 where it waited."""
    host, window = parts.host, parts.window
    waited = parts.threads.waited.copy()
    own_gap = _marker_gaps(parts)
    for chain in parts.chains:
        if chain.kind != "join":
            waited[chain.dst] = True
    rows = chosen.host
    first = np.ones(len(rows), bool)
    first[1:] = host.thread[rows[1:]] != host.thread[rows[:-1]]
    before, after = rows[:-1][~first[1:]], rows[1:][~first[1:]]
    lag = np.clip(host.start_ns[after] - host.end_ns[before], 0, None)
    lag = np.where(waited[after], 0, np.where(own_gap[after] >= 0, np.minimum(lag, own_gap[after]), lag))
    cut = overhead.per_segment_ns if overhead else 0.0
    lag = np.clip(lag - cut, 0, None).astype(np.int64)
    yield Some(chosen.host_row[before], chosen.host_row[after], lag, "thread", "order")
    heads = rows[first]
    tails = rows[np.append(first[1:], [True])] if len(rows) else rows
    seam = (window.end_ns - host.end_ns[tails]) + (host.start_ns[heads] - window.start_ns)
    seam = np.clip(seam, 0, None)
    seam = np.where(own_gap[heads] >= 0, np.minimum(seam, own_gap[heads]), seam)
    seam = np.where(waited[heads] | (host.thread[heads] != parts.threads.main), 0, seam)
    seam = np.clip(seam - cut, 0, None).astype(np.int64)
    yield Some(chosen.host_row[tails], chosen.host_row[heads], seam, "thread", "order", 1)


def _marker_gaps(parts: Parts) -> Ints:
    """Per host task: what its thread itself spends before it when it need not wait; −1: all of it.

    Known for step markers that wait for a loader: the shortest pause seen, or the fetch's own cost.
    """
    own = np.full(len(parts.host), -1, np.int64)
    joins = [chain for chain in parts.chains if chain.kind == "join"]
    if joins and len(parts.markers) > 1:
        markers = parts.markers
        pause = parts.host.start_ns[markers[1:]] - parts.host.end_ns[markers[1:] - 1]
        own[markers] = max(int(pause.min()), 0)
    if parts.loads is not None:
        consumer = parts.loads.consumer
        marks = consumer[parts.host.start_ns[consumer] == parts.host.end_ns[consumer]]
        own[marks] = parts.loads.own_ns
        if len(marks):
            own[parts.markers[:1]] = parts.loads.own_ns
    return own


def _stream_order(parts: Parts, chosen: Selection) -> Iterator[Some]:
    devices = parts.devices
    rows = chosen.device
    first = np.ones(len(rows), bool)
    first[1:] = devices.lane[rows[1:]] != devices.lane[rows[:-1]]
    before, after = rows[:-1][~first[1:]], rows[1:][~first[1:]]
    yield Some(chosen.device_row[before], chosen.device_row[after], parts.stream_lags[after], "stream", "order")
    heads = rows[first]
    tails = rows[np.append(first[1:], [True])] if len(rows) else rows
    yield Some(chosen.device_row[tails], chosen.device_row[heads], parts.stream_lags[heads], "stream", "order", 1)


def _launches(parts: Parts, chosen: Selection) -> Some:
    rows = chosen.device[parts.devices.launch[chosen.device] >= 0]
    call = chosen.host_row[parts.devices.launch[rows]]
    known = call >= 0
    rows, call = rows[known], call[known]
    return Some(call, chosen.device_row[rows], parts.launch_lags[rows], "launch", "correlation")


def _event_returns(parts: Parts, chosen: Selection) -> Some:
    """Event synchronisations return after the task that was seen to release them."""
    waits = parts.waits
    calls = chosen.host[waits.event_task[chosen.host] >= 0]
    task = chosen.device_row[waits.event_task[calls]]
    calls, task = calls[task >= 0], task[task >= 0]
    return Some(task, chosen.host_row[calls], waits.return_ns[calls], "return", "event")


def _streams_waiting(parts: Parts, chosen: Selection) -> Iterator[Some]:
    if parts.event_edges is None:
        return
    src, dst, rule = parts.event_edges
    for name in np.unique(rule).tolist():
        same = rule == name
        a, b = chosen.device_row[src[same]], chosen.device_row[dst[same]]
        inside = (a >= 0) & (b >= 0)
        yield Some(a[inside], b[inside], 0, "event", name)


def _between_threads(edges: HostEdges, parts: Parts, chosen: Selection) -> Iterator[Some]:
    """Forks and joins; one into the marker that ends the window leads to the one that begins it."""
    starts = parts.host.start_ns[parts.markers]
    first, last = (parts.markers[starts == t] for t in (parts.window.start_ns, parts.window.end_ns))
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


def _loads(parts: Parts, chosen: Selection) -> Iterator[Some]:
    """Batches arrive in order; the consumer starts when its batch is there."""
    rows = chosen.load_row[chosen.load]
    if parts.loads is None or not len(rows):
        return
    consumer = parts.loads.consumer[chosen.load]
    at_marker = parts.host.start_ns[consumer] == parts.host.end_ns[consumer]
    lag = np.where(at_marker, parts.loads.own_ns, 0)
    yield Some(rows[:-1], rows[1:], 0, "thread", "loader")
    yield Some(rows[-1:], rows[:1], 0, "thread", "loader", 1)
    yield Some(rows, chosen.host_row[consumer], lag, "data", "loader wait")
