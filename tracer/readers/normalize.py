"""What every recording goes through, whichever tool wrote it: mend, drop, merge, count, sort.

The functions work on a dict of columns. What they drop they return as a mask; the one function
that readers call, `finish`, applies the masks and builds the frame.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from foretrace.errors import TraceError
from foretrace.tracer.readers.columns import LATEST_NS
from foretrace.tracer.readers.lengths import cut_overlong_tasks, mend_lengths
from foretrace.tracer.readers.links import DEVICE_TASKS, count_links, is_kind, link_keys
from foretrace.tracer.trace import EVENT_COLUMNS
from foretrace.util.schema import table

if TYPE_CHECKING:
    import pandas as pd

    from foretrace.tracer.data_issues import Tally

NOT_COPIED = ("python", "memory")
"""Kinds whose rows carry no id that would tell a copy from a twin."""
COPY_KEYS = ("rank", "name", "kind", "device", "stream", "thread")
ID_KEYS = ("correlation", "external_id", "sequence", "bytes", "blocks")


def finish(values: dict[str, Any], source: str, tally: Tally) -> tuple[pd.DataFrame, int]:
    """Return the event table with its first start at 0, and where that was before.

    Parameters
    ----------
    values
        Columns in the order read, changed in place; rows without a kind are dropped.
    source
        The file's name, for messages.
    tally
        Counts what is mended, merged and dropped.

    Raises
    ------
    TraceError
        If no event is left.
    """
    values = _select_rows(values, np.flatnonzero(~_bad_starts(values, tally)))
    mend_lengths(values, tally)
    order = np.lexsort((-values["duration_ns"], values["start_ns"], values["rank"]))
    values = _select_rows(values, order)
    values = _select_rows(values, np.flatnonzero(~find_copies(values, tally)))
    if cut_overlong_tasks(values, tally):
        order = np.lexsort((-values["duration_ns"], values["start_ns"], values["rank"]))
        values = _select_rows(values, order)
    values = _select_rows(values, np.flatnonzero(~merge_nested_calls(values, tally)))
    count_links(values, tally)
    rows = len(values["start_ns"])
    if not rows:
        raise TraceError(f"{source}: no event has a usable start; record it again")
    first = int(values["start_ns"].min())
    values["start_ns"] = values["start_ns"] - first
    return table(EVENT_COLUMNS, values, rows), first


def _select_rows(values: dict[str, Any], rows: np.ndarray) -> dict[str, Any]:
    if len(rows) == len(values["start_ns"]) and (np.diff(rows) == 1).all():
        return values
    return {name: column[rows] for name, column in values.items()}


def _bad_starts(values: dict[str, Any], tally: Tally) -> np.ndarray:
    """Return events without a kind, without a start, and device tasks never stamped (0 and 0)."""
    start = values["start_ns"]
    no_kind = values["kind"].codes < 0
    bad = ((start < 0) | (start > LATEST_NS)) & ~no_kind
    device = is_kind(values, *DEVICE_TASKS)
    others = start[~device & ~bad & ~no_kind]
    never = (start == 0) & (values["duration_ns"] == 0) & device
    if not len(others) or others.min() == 0:
        never[:] = False
    tally.add("bad_timestamp", np.count_nonzero(bad))
    tally.add("zero_timestamp", np.count_nonzero(never))
    return bad | never | no_kind


def find_copies(values: dict[str, Any], tally: Tally) -> np.ndarray:
    """Return exact copies; count those that differ in their ids alone, which are kept.

    Two calls within one microsecond look alike in a recording with whole microseconds, but each
    has its ids. Device tasks of length 0 may be equal in all we read and still be two.
    """
    import pandas as pd

    start, duration = values["start_ns"], values["duration_ns"]
    again = (start[1:] == start[:-1]) & (duration[1:] == duration[:-1])
    twin = np.zeros(len(start), bool)
    twin[1:] |= again
    twin[:-1] |= again
    twin &= ~(is_kind(values, *DEVICE_TASKS) & (duration == 0)) & ~is_kind(values, "memory")
    rows = np.flatnonzero(twin)
    is_copy = np.zeros(len(start), bool)
    if not len(rows):
        return is_copy
    keys = {"start": start[rows], "duration": duration[rows]}
    keys |= {c: getattr(values[c], "codes", values[c])[rows] for c in COPY_KEYS}
    alike = pd.DataFrame(keys).duplicated().to_numpy()
    ids = {c: values[c][rows] for c in ID_KEYS if c in values}
    same = pd.DataFrame(keys | ids).duplicated().to_numpy() & ~is_kind(values, *NOT_COPIED)[rows]
    tally.add("duplicate_events", np.count_nonzero(same))
    tally.add("coinciding_events", np.count_nonzero(alike & ~same))
    is_copy[rows[same]] = True
    return is_copy


def merge_nested_calls(values: dict[str, Any], tally: Tally) -> np.ndarray:
    """Return the calls inside another call; what they put on a device now belongs to the outer.

    A runtime call may contain the driver call that does the work: the work is one call's, and its
    correlation must still lead from the device task to a call.
    """
    start = values["start_ns"]
    dropped = np.zeros(len(start), bool)
    calls = np.flatnonzero(is_kind(values, "runtime"))
    lane = (values["rank"].astype(np.int64), values["thread"])
    calls = calls[np.lexsort((calls, *(column[calls] for column in lane)))]
    end = start + values["duration_ns"]
    same_lane = np.logical_and.reduce([c[calls[1:]] == c[calls[:-1]] for c in lane])
    outer = _enclosing(start[calls], end[calls], same_lane)
    inner = np.flatnonzero(outer >= 0)
    if not len(inner):
        return dropped
    tally.add("nested_calls", len(inner))
    inner_rows, outer_rows = calls[inner], calls[outer[inner]]
    values["correlation"] = _redirect_correlations(values, inner_rows, outer_rows)
    dropped[inner_rows] = True
    return dropped


def _enclosing(start: np.ndarray, end: np.ndarray, same_lane: np.ndarray) -> np.ndarray:
    """Return the outermost call around each call, or −1, for calls sorted by lane, start, -length.

    Equal intervals are two calls within one tick of the clock, not a call inside another.
    """
    outer = np.full(len(start), -1, np.int64)
    reach = np.concatenate(
        [np.maximum.accumulate(lane) for lane in np.split(end, np.flatnonzero(~same_lane) + 1)]
    )
    suspects = np.flatnonzero(same_lane & (start[1:] < reach[:-1])) + 1
    root = previous = -1
    for i in suspects.tolist():
        if root < 0 or i != previous + 1:
            root = i - 1
        previous = i
        if end[i] <= end[root] and (start[i] > start[root] or end[i] < end[root]):
            outer[i] = root
        else:
            root = i
    return outer


def _redirect_correlations(
    values: dict[str, Any], inner_rows: np.ndarray, outer_rows: np.ndarray
) -> np.ndarray:
    """Return the correlations with those of inner calls replaced, on calls and device rows."""
    correlation = values["correlation"].copy()
    orphan = correlation[outer_rows] < 0
    correlation[outer_rows[orphan]] = correlation[inner_rows[orphan]]
    target = correlation[outer_rows]
    keys = link_keys(values, correlation)
    inner_keys, where = np.unique(keys[inner_rows], return_index=True)
    linked = np.flatnonzero(is_kind(values, *DEVICE_TASKS, "sync"))
    linked = linked[correlation[linked] >= 0]
    at = np.minimum(np.searchsorted(inner_keys, keys[linked]), len(inner_keys) - 1)
    hit = inner_keys[at] == keys[linked]
    correlation[linked[hit]] = target[where[at[hit]]]
    return correlation
