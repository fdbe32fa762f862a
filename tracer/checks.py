"""What every recording is checked for, whichever tool wrote it: mended, dropped or counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from foretrace.errors import TraceError

if TYPE_CHECKING:
    import pandas as pd

    from foretrace.tracer.oddities import Tally

WEEK_NS = 7 * 24 * 3600 * 10**9
"""No event lasts longer; CUPTI has been seen to write 236 years."""
ABSURD_OVERLAP_NS = 100_000_000
"""A device task that reaches so far into the next one of its stream has a broken end."""
DEVICE_KINDS = ("kernel", "memcpy", "memset")


def clean(frame: pd.DataFrame, tally: Tally) -> pd.DataFrame:
    """Drop and mend, in this order: starts, copies, lengths, nested calls; count the links."""
    frame = drop_bad_starts(frame, tally)
    frame = drop_copies(frame, tally)
    frame = mend_lengths(frame, tally)
    frame = merge_nested_calls(frame, tally)
    count_links(frame, tally)
    return frame


def is_kind(frame: pd.DataFrame, *kinds: str) -> np.ndarray:
    """Return which rows are of one of *kinds*."""
    categories = list(frame["kind"].cat.categories)
    return np.isin(frame["kind"].cat.codes, [categories.index(k) for k in kinds if k in categories])


def drop_bad_starts(frame: pd.DataFrame, tally: Tally) -> pd.DataFrame:
    """Drop events before time began, and device events the profiler never stamped."""
    start = frame["start_ns"].to_numpy()
    bad = start < 0
    device = is_kind(frame, *DEVICE_KINDS)
    others = start[~device & ~bad]
    never = (start == 0) & (frame["duration_ns"].to_numpy() == 0) & device
    if not len(others) or others.min() == 0:
        never[:] = False
    tally.add("bad_timestamp", int(bad.sum()))
    tally.add("zero_timestamp", int(never.sum()))
    keep = ~(bad | never)
    return frame if keep.all() else frame[keep].reset_index(drop=True)


COPY_KEYS = ("name", "kind", "device", "stream", "thread", "start_ns", "duration_ns",
             "correlation", "external_id", "sequence", "bytes", "blocks", "shapes")  # fmt: skip


def drop_copies(frame: pd.DataFrame, tally: Tally) -> pd.DataFrame:
    """Drop exact copies; device events of length 0 may be alike without being copies."""
    start, duration = frame["start_ns"].to_numpy(), frame["duration_ns"].to_numpy()
    same = np.zeros(len(frame), bool)
    same[1:] = (start[1:] == start[:-1]) & (duration[1:] == duration[:-1])
    same[:-1] |= same[1:]
    unstamped = is_kind(frame, "memory") | (is_kind(frame, *DEVICE_KINDS) & (duration == 0))
    rows = np.flatnonzero(same & ~unstamped)
    copies = rows[frame.loc[rows, list(COPY_KEYS)].duplicated().to_numpy()]
    tally.add("duplicate_events", len(copies))
    if not len(copies):
        return frame
    return frame.drop(index=copies).reset_index(drop=True)


def mend_lengths(frame: pd.DataFrame, tally: Tally) -> pd.DataFrame:
    """Give negative lengths 0 and cut impossible ones at the next start on their lane."""
    start = frame["start_ns"].to_numpy()
    duration = frame["duration_ns"].to_numpy().copy()
    negative = duration < 0
    tally.add("negative_duration", int(negative.sum()))
    duration[negative] = 0
    device = is_kind(frame, *DEVICE_KINDS)
    following = next_start(frame, device)
    absurd = (duration >= WEEK_NS) | (device & (start + duration > following + ABSURD_OVERLAP_NS))
    tally.add("absurd_duration", int(absurd.sum()))
    limit = np.where(following < np.iinfo(np.int64).max // 4, following - start, 0)
    duration[absurd] = limit[absurd]
    return frame.assign(duration_ns=duration) if (negative | absurd).any() else frame


def next_start(frame: pd.DataFrame, device: np.ndarray) -> np.ndarray:
    """Return when the next event of the same lane starts (far in the future for the last)."""
    start = frame["start_ns"].to_numpy()
    lane = [frame[c].to_numpy() for c in ("rank", "device", "stream", "thread")]
    order = np.lexsort((np.arange(len(start)), start, *lane, device))
    following = np.full(len(start), np.iinfo(np.int64).max // 2)
    if len(order) > 1:
        a, b = order[:-1], order[1:]
        together = device[a] == device[b]
        for column in lane:
            together &= column[a] == column[b]
        following[a[together]] = start[b[together]]
    return following


def merge_nested_calls(frame: pd.DataFrame, tally: Tally) -> pd.DataFrame:
    """Merge a call inside another call of its thread into the outer one, links included."""
    start = frame["start_ns"].to_numpy()
    end = start + frame["duration_ns"].to_numpy()
    thread, rank = frame["thread"].to_numpy(), frame["rank"].to_numpy()
    calls = np.flatnonzero(is_kind(frame, "runtime"))
    calls = calls[np.lexsort((calls, thread[calls], rank[calls]))]
    if len(calls) < 2:  # noqa: PLR2004
        return frame
    outer = _enclosing(start[calls], end[calls], thread[calls] + (rank[calls].astype(np.int64) << 48))
    inner = np.flatnonzero(outer >= 0)
    if not len(inner):
        return frame
    tally.add("nested_calls", len(inner))
    correlation = frame["correlation"].to_numpy().copy()
    inner_rows, outer_rows = calls[inner], calls[outer[inner]]
    take = correlation[outer_rows] < 0
    correlation[outer_rows[take]] = correlation[inner_rows[take]]
    moved = dict(zip(correlation[inner_rows].tolist(), correlation[outer_rows].tolist(), strict=True))
    moved.pop(-1, None)
    keys = np.array(sorted(moved), np.int64)
    if len(keys):
        targets = np.array([moved[k] for k in keys.tolist()], np.int64)
        linked = np.flatnonzero(is_kind(frame, *DEVICE_KINDS, "sync"))
        at = np.minimum(np.searchsorted(keys, correlation[linked]), len(keys) - 1)
        hit = keys[at] == correlation[linked]
        correlation[linked[hit]] = targets[at[hit]]
    return frame.assign(correlation=correlation).drop(index=inner_rows).reset_index(drop=True)


def _enclosing(start: np.ndarray, end: np.ndarray, lane: np.ndarray) -> np.ndarray:
    """Return, per call sorted by (lane, start, -length), the outermost call around it, or −1."""
    outer = np.full(len(start), -1, np.int64)
    suspects = np.flatnonzero((lane[1:] == lane[:-1]) & (start[1:] < end[:-1])) + 1
    root, last = -1, -2
    for i in suspects.tolist():
        root = root if i == last + 1 and root >= 0 else i - 1
        last = i
        inside = end[i] <= end[root] and (start[i] > start[root] or end[i] < end[root])
        if inside:
            outer[i] = root
        else:
            root = i
    return outer


def count_links(frame: pd.DataFrame, tally: Tally) -> None:
    """Count device tasks without a launch, launches without a task, and effects before causes."""
    device, calls = is_kind(frame, *DEVICE_KINDS), is_kind(frame, "runtime")
    correlation = frame["correlation"].to_numpy()
    start = frame["start_ns"].to_numpy()
    launched = np.flatnonzero(device)
    known = np.flatnonzero(calls & (correlation >= 0))
    order = known[np.argsort(correlation[known], kind="stable")]
    if not len(launched):
        return
    if not len(order):
        tally.add("kernel_without_launch", len(launched))
        return
    at = np.minimum(np.searchsorted(correlation[order], correlation[launched]), len(order) - 1)
    found = correlation[order[at]] == correlation[launched]
    tally.add("kernel_without_launch", int((~found).sum()))
    tally.add("kernel_before_launch", int((start[launched[found]] < start[order[at[found]]]).sum()))
    names = frame["name"].cat.categories
    launches = np.array(["Launch" in n or "MemcpyAsync" in n or "MemsetAsync" in n for n in names])
    lost = launches[frame["name"].cat.codes.to_numpy()[order]] & ~np.isin(
        correlation[order], correlation[launched]
    )
    tally.add("launch_without_kernel", int(lost.sum()))


def to_origin(frame: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """Shift all starts so that the first is 0; return the frame and the shift."""
    if frame.empty:
        raise TraceError("the trace holds no usable event; record it again")
    first = int(frame["start_ns"].min())
    return frame.assign(start_ns=frame["start_ns"].to_numpy() - first), first


def resident_blocks(values: dict[str, Any], limits: dict[int, dict[str, Any]]) -> np.ndarray:
    """Placeholder until the device limits are known."""
    return np.full(len(values["blocks"]), np.nan)
