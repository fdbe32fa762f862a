"""Events that a file of our own claims: within what readers of recordings give, or refused."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from foretrace.errors import TraceError
from foretrace.tracer.readers.columns import LATEST_NS
from foretrace.tracer.trace import EVENT_KINDS, Trace

if TYPE_CHECKING:
    from numpy.typing import NDArray

QUANTITIES = ("flops", "blocks_per_sm", "bytes")


def check_events(trace: Trace, source: str) -> Trace:
    """Return *trace* with quantities that are none unknown, and its events in order.

    Raises
    ------
    TraceError
        A kind is unknown, a time is negative or endless, or an event is of a rank that the
        metadata does not name.
    """
    events = trace.events
    kind = events["kind"].array
    unknown = [str(each) for each in kind.categories if each not in EVENT_KINDS]
    if unknown or (kind.codes < 0).any():
        named = repr(unknown[0][:40]) if unknown else "missing"
        raise TraceError(f"{source}: the kind of an event is {named}; import it again")
    if (events["name"].array.codes < 0).any():
        raise TraceError(f"{source}: an event has no name; import it again")
    rank, start, length = (events[name].to_numpy() for name in ("rank", "start_ns", "duration_ns"))
    for column, times in (("start_ns", start), ("duration_ns", length)):
        if len(times) and not 0 <= times.min() <= times.max() <= LATEST_NS:
            raise TraceError(f"{source}: column {column!r} holds a time that cannot be")
    ranks = np.bincount(np.maximum(rank, -1) + 1).nonzero()[0] - 1
    if not set(ranks.tolist()) <= set(trace.meta.ranks):
        raise TraceError(f"{source}: an event is of a rank that the file does not name")
    mended = {}
    for column in QUANTITIES:
        values = events[column].to_numpy()
        wrong = np.isinf(values) | ((values < 0) & (column != "bytes"))
        if wrong.any():
            mended[column] = np.where(wrong, np.nan, values)
    if mended:
        events = events.assign(**mended)
    if not _is_in_order(rank, start, length):
        events = events.iloc[np.lexsort((-length, start, rank))].reset_index(drop=True)
    return trace if events is trace.events else replace(trace, events=events)


def _is_in_order(
    rank: NDArray[np.int64], start: NDArray[np.int64], length: NDArray[np.int64]
) -> bool:
    """Tell whether events are in order of *rank*, *start*, and the longest first."""
    later = start[1:] > start[:-1]
    later |= (start[1:] == start[:-1]) & (length[1:] <= length[:-1])
    return bool(((rank[1:] > rank[:-1]) | (rank[1:] == rank[:-1]) & later).all())
