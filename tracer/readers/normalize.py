"""What every recording goes through, whichever tool wrote it: mend, drop, merge, count, sort.

The functions work on a dict of columns. What they drop they return as a mask; the one function
that readers call, `finish`, applies the masks and builds the frame.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from foretrace.errors import TraceError
from foretrace.tracer.trace import EVENT_COLUMNS, EVENT_KINDS
from foretrace.util.schema import table

if TYPE_CHECKING:
    import pandas as pd

    from foretrace.tracer.data_issues import Tally

WEEK_NS = 7 * 24 * 3600 * 10**9
"""No event lasts longer; CUPTI has been seen to write 236 years."""
ABSURD_OVERLAP_NS = 100_000_000
"""A device task reaching so far into the next one of its stream has a broken end (assumption)."""
DEVICE_TASKS = ("kernel", "memcpy", "memset")
NOT_COPIED = ("python", "memory")
"""Kinds whose rows carry no id that would tell a copy from a twin."""
COPY_KEYS = ("name", "kind", "device", "stream", "thread")
ID_KEYS = ("correlation", "external_id", "sequence", "bytes", "blocks")
RANK_SHIFT = 48
"""Correlations have 32 bits, ranks 15."""
FAR = np.iinfo(np.int64).max // 2


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


def is_kind(values: dict[str, Any], *kinds: str) -> np.ndarray:
    """Return which rows are of one of *kinds*."""
    wanted = np.zeros(len(EVENT_KINDS) + 1, bool)
    wanted[[EVENT_KINDS.index(kind) for kind in kinds]] = True
    return wanted[values["kind"].codes]


def _bad_starts(values: dict[str, Any], tally: Tally) -> np.ndarray:
    """Return events without a kind, without a start, and device tasks never stamped (0 and 0)."""
    start = values["start_ns"]
    no_kind = values["kind"].codes < 0
    bad = (start < 0) & ~no_kind
    device = is_kind(values, *DEVICE_TASKS)
    others = start[~device & ~bad & ~no_kind]
    never = (start == 0) & (values["duration_ns"] == 0) & device
    if not len(others) or others.min() == 0:
        never[:] = False
    tally.add("bad_timestamp", np.count_nonzero(bad))
    tally.add("zero_timestamp", np.count_nonzero(never))
    return bad | never | no_kind


def mend_lengths(values: dict[str, Any], tally: Tally) -> None:
    """Give negative lengths 0, and cut impossible ones where the next event of the lane starts."""
    start, duration = values["start_ns"], values["duration_ns"]
    negative = duration < 0
    tally.add("negative_duration", np.count_nonzero(negative))
    duration = np.where(negative, 0, duration)
    device = is_kind(values, *DEVICE_TASKS)
    rows = np.flatnonzero(device | (duration >= WEEK_NS))
    lane = [values[c][rows] for c in ("rank", "device", "stream", "thread")]
    following = _next_starts(start[rows], lane)
    length = duration[rows]
    overlap = device[rows] & (start[rows] + length > following + ABSURD_OVERLAP_NS)
    absurd = (length >= WEEK_NS) | overlap
    tally.add("absurd_duration", np.count_nonzero(absurd))
    cut = np.where(following < FAR, following - start[rows], 0)
    duration[rows] = np.where(absurd, cut, length)
    values["duration_ns"] = duration


def _next_starts(start: np.ndarray, lane: list[np.ndarray]) -> np.ndarray:
    """Return when the next event of the same lane starts; `FAR` after the last."""
    following = np.full(len(start), FAR)
    order = np.lexsort((start, *lane))
    before, after = order[:-1], order[1:]
    together = np.logical_and.reduce([column[before] == column[after] for column in lane])
    following[before[together]] = start[after[together]]
    return following


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


def link_keys(values: dict[str, Any], correlation: np.ndarray) -> np.ndarray:
    """Return ids that are unique over all ranks; a correlation is so in its own only."""
    return correlation + (values["rank"].astype(np.int64) << RANK_SHIFT)


def launches_of(values: dict[str, Any], rows: np.ndarray) -> np.ndarray:
    """Return the row of the call behind each of *rows*, or −1."""
    calls = np.flatnonzero(is_kind(values, "runtime") & (values["correlation"] >= 0))
    launch = np.full(len(rows), -1, np.int64)
    if not len(calls):
        return launch
    keys = link_keys(values, values["correlation"])
    call_keys, where = np.unique(keys[calls], return_index=True)
    wanted = keys[rows]
    at = np.minimum(np.searchsorted(call_keys, wanted), len(call_keys) - 1)
    hit = call_keys[at] == wanted
    launch[hit] = calls[where[at[hit]]]
    return launch


def count_links(values: dict[str, Any], tally: Tally) -> None:
    """Count what is odd about which call put what on a device."""
    start = values["start_ns"]
    tasks = np.flatnonzero(is_kind(values, *DEVICE_TASKS))
    if not len(tasks):
        return
    call = launches_of(values, tasks)
    linked = call >= 0
    tally.add("kernel_without_launch", np.count_nonzero(~linked))
    tally.add("kernel_before_launch", np.count_nonzero(start[tasks[linked]] < start[call[linked]]))
    tally.add("shared_correlation", np.count_nonzero(np.bincount(call[linked]) > 1))
    names = values["name"]
    launching = np.array([is_launch(name) for name in names.categories], bool)
    launches = np.flatnonzero(is_kind(values, "runtime") & launching[names.codes])
    tally.add("launch_without_kernel", np.count_nonzero(~np.isin(launches, call)))


def is_launch(name: str) -> bool:
    """Say whether a call of this name puts a kernel, copy or memset on a device."""
    return (
        "Launch" in name or "MemcpyAsync" in name or "MemsetAsync" in name
    ) and not name.endswith(("HostFunc", "Attribute", "Configuration"))
