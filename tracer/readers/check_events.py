"""Events that a file of our own claims: within what readers of recordings give, or refused."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from foretrace.errors import TraceError
from foretrace.tracer.readers.columns import LATEST_NS
from foretrace.tracer.trace import EVENT_KINDS, Trace

if TYPE_CHECKING:
    import pandas as pd

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
    kinds = events["kind"].cat.categories
    unknown = [str(kind) for kind in kinds if kind not in EVENT_KINDS]
    if unknown or events["kind"].isna().any():
        named = repr(unknown[0][:40]) if unknown else "missing"
        raise TraceError(f"{source}: the kind of an event is {named}; import it again")
    if events["name"].isna().any():
        raise TraceError(f"{source}: an event has no name; import it again")
    for column in ("start_ns", "duration_ns"):
        times = events[column].to_numpy()
        if len(times) and not 0 <= times.min() <= times.max() <= LATEST_NS:
            raise TraceError(f"{source}: column {column!r} holds a time that cannot be")
    ranks = np.bincount(np.maximum(events["rank"].to_numpy(), -1) + 1).nonzero()[0] - 1
    if not np.isin(ranks, trace.meta.ranks).all():
        raise TraceError(f"{source}: an event is of a rank that the file does not name")
    mended = {}
    for column in QUANTITIES:
        values = events[column].to_numpy()
        wrong = np.isinf(values) | ((values < 0) & (column != "bytes"))
        if wrong.any():
            mended[column] = np.where(wrong, np.nan, values)
    if mended:
        events = events.assign(**mended)
    if not _is_in_order(events):
        keys = (-events["duration_ns"].to_numpy(), events["start_ns"].to_numpy())
        order = np.lexsort((*keys, events["rank"].to_numpy()))
        events = events.iloc[order].reset_index(drop=True)
    return trace if events is trace.events else replace(trace, events=events)


def _is_in_order(events: pd.DataFrame) -> bool:
    """Tell whether *events* are in order of rank, start, and the longest first."""
    rank, start, length = (events[name].to_numpy() for name in ("rank", "start_ns", "duration_ns"))
    later = start[1:] > start[:-1]
    later |= (start[1:] == start[:-1]) & (length[1:] <= length[:-1])
    return bool(((rank[1:] > rank[:-1]) | (rank[1:] == rank[:-1]) & later).all())
