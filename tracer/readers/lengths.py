"""Lengths that cannot be: negative ones, those of years, and tasks that outlast their stream."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from foretrace.tracer.readers.links import DEVICE_TASKS, is_kind, launches_of, link_keys

if TYPE_CHECKING:
    from foretrace.tracer.data_issues import Tally

WEEK_NS = 7 * 24 * 3600 * 10**9
"""No event lasts longer; CUPTI has been seen to write 236 years."""
OVERLAP_NS = 20_000
"""A device task reaching farther into the next one of its stream has a broken end.

Streams run in order. Rounding, and kernels that begin while the one before them drains, overlapped
by 4 µs at most in the recordings at hand; branches of CUDA graphs overlap by any length.
"""
DEVICE_SYNC = re.compile(r"^[a-z]+(Device|Ctx)Synchronize")
STREAM_SYNC = re.compile(r"^[a-z]+StreamSynchronize")
"""Waits for all that its device does where that has one stream; else the call names none."""
JUST_NS = 2_000
"""A synchronisation that begins so little before a launch call ends still waits for it."""
FAR = np.iinfo(np.int64).max // 2


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
    absurd = duration[rows] >= WEEK_NS
    tally.add("absurd_duration", np.count_nonzero(absurd))
    cut = np.where(following < FAR, following - start[rows], 0)
    duration[rows] = np.where(absurd, cut, duration[rows])
    values["duration_ns"] = duration


def cut_overlong_tasks(values: dict[str, Any], tally: Tally) -> int:
    """Cut device tasks that last too long, and return how many did.

    A task ends before the next one of its stream begins, and before a device synchronisation that
    began after its launch returns. Those of CUDA graphs are left alone: branches share a stream in
    a recording, and overlap. ``context`` tells streams of one number apart, where it is known.
    """
    rows = np.flatnonzero(is_kind(values, *DEVICE_TASKS) & ~_of_graphs(values))
    rows = rows[values["stream"][rows] >= 0]
    lane = [values[c][rows] for c in ("rank", "device", "stream", "context") if c in values]
    start, end = values["start_ns"][rows], (values["start_ns"] + values["duration_ns"])[rows]
    limit = np.minimum(_next_starts(start, lane), _sync_returns(values, rows))
    broken = np.flatnonzero((end > limit + OVERLAP_NS) & (limit > start))
    tally.add("absurd_duration", len(broken))
    if len(broken):
        duration = values["duration_ns"].copy()
        duration[rows[broken]] = (limit - start)[broken]
        values["duration_ns"] = duration
    return len(broken)


def _sync_returns(values: dict[str, Any], rows: np.ndarray) -> np.ndarray:
    """Return when the first device synchronisation after the launch of each task returned.

    `FAR` where there is none, where a task's launch is unknown, and where a rank has several
    devices: a call names none of them.
    """
    of_device, of_stream = (_find_calls(values, named) for named in (DEVICE_SYNC, STREAM_SYNC))
    returned = np.full(len(rows), FAR)
    if not len(of_device) + len(of_stream):
        return returned
    launch = launches_of(values, rows)
    launched = (values["start_ns"] + values["duration_ns"])[launch] - JUST_NS
    devices = is_kind(values, *DEVICE_TASKS)
    for rank in np.unique(values["rank"][rows]).tolist():
        mine = devices & (values["rank"] == rank)
        if len(np.unique(values["device"][mine])) > 1:
            continue
        has_one_stream = len(np.unique(values["stream"][mine])) == 1
        here = np.flatnonzero((values["rank"][rows] == rank) & (launch >= 0))
        syncs = np.concatenate([of_device, of_stream]) if has_one_stream else of_device
        own = syncs[values["rank"][syncs] == rank]
        own = own[np.argsort(values["start_ns"][own], kind="stable")]
        ends = np.append(values["start_ns"][own] + values["duration_ns"][own], FAR)
        returned[here] = ends[np.searchsorted(values["start_ns"][own], launched[here])]
    return returned


def _find_calls(values: dict[str, Any], named: re.Pattern[str]) -> np.ndarray:
    """Return the rows of the API calls whose names begin as *named*."""
    names = values["name"]
    hit = np.array([bool(named.match(name)) for name in names.categories], bool)
    return np.flatnonzero(is_kind(values, "runtime") & hit[names.codes])


def _of_graphs(values: dict[str, Any]) -> np.ndarray:
    """Tell the tasks that a replayed graph put on a device: one call for several, or a node."""
    device = np.flatnonzero(is_kind(values, *DEVICE_TASKS))
    of_graph = values["graph_node"] > 0
    keys = link_keys(values, values["correlation"])[device]
    _, place, times = np.unique(keys, return_inverse=True, return_counts=True)
    of_graph[device] |= (times[place] > 1) & (values["correlation"][device] > 0)
    return of_graph


def _next_starts(start: np.ndarray, lane: list[np.ndarray]) -> np.ndarray:
    """Return when the next event of the same lane starts; `FAR` after the last."""
    following = np.full(len(start), FAR)
    order = np.lexsort((start, *lane))
    before, after = order[:-1], order[1:]
    together = np.logical_and.reduce([column[before] == column[after] for column in lane])
    following[before[together]] = start[after[together]]
    return following
