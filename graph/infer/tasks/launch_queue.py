"""How many launches were ahead of their stream when a call was made, and which calls that blocked.

In: host and device tasks of one rank. Out: launches outstanding per call, those made before the
recording included: CUPTI records their kernels without their calls, or nothing at all of them.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from foretrace.graph.infer.events import Events
    from foretrace.graph.infer.tasks.device_tasks import DeviceTasks
    from foretrace.graph.infer.tasks.host_tasks import HostTasks
    from foretrace.tracer.trace import Device

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]

QUEUE_LIMIT = 1_023
"""NVIDIA: launches outstanding on one stream. Others went beyond 1,800."""
QUEUE_NEARLY = 900
"""A call that is long with so many outstanding waited for a free slot."""
FULL = 0.97
"""Of the most that a stream had outstanding: with so many, every call waits, however short it is.

The share that is missing is entries that no recording shows, such as event records.
"""
QUEUE_ABOUT = 1_150
"""As many launches as a lag of unrecorded ones may come out as where the queue was full."""
LATE_NS = 1_000_000
"""A first task that starts so long after its call, with nothing before it, followed others."""
BLOCKED_SHARE = 0.2
"""Of the time until then that lies in long launches, where the queue was full."""
LASTING_NS = 15_000
"""No launch lasts so long again and again unless it waits."""
LEAST_LEVEL, LEAST_CALLS = 64, 32
"""Fewer launches ahead, or fewer calls made so, show no queue."""
STAYS = 0.2
"""Share of a stream's launches that are made with its queue full where it has filled."""
HALF = 0.5
_OTHER_MAKERS = re.compile(r"\bAMD\b|Instinct|Radeon|\bMI\d|\bgfx\d|Intel|Gaudi", re.IGNORECASE)
_OTHER_CALLS = re.compile("^(hip|musa|ur|pi|ze|acl)[A-Zr]")


class LaunchQueue(NamedTuple):
    """Per host task: launches of its stream that had not started when it was called.

    ``level`` is the most that its stream ever had, ``limit`` how many a queue holds; ``None``: any.
    """

    outstanding: Ints
    level: Ints
    limit: int | None

    @property
    def is_near(self) -> Flags:
        """Tell which calls were made while the queue was about full."""
        if self.limit is None:
            return np.zeros(len(self.outstanding), bool)
        return self.outstanding >= self.limit * QUEUE_NEARLY // QUEUE_LIMIT

    @property
    def is_full(self) -> Flags:
        """Tell which calls were made while it was full for certain."""
        return self.is_near & (self.outstanding >= FULL * self.level)


class _Entries(NamedTuple):
    """What one stream was given, in its order: the calls (−1: unrecorded) and the first starts."""

    call: Ints
    start_ns: Ints


def count_outstanding(
    events: Events, host: HostTasks, devices: DeviceTasks, makers: Sequence[Device]
) -> LaunchQueue:
    """Count what every stream had not yet begun at each launch; a graph counts once.

    Parameters
    ----------
    makers
        The recording's devices by name: only NVIDIA's have the limit.
    """
    outstanding = np.zeros(len(host), np.int64)
    level = np.zeros(len(host), np.int64)
    bounds = np.searchsorted(devices.lane, np.arange(devices.lanes + 1))
    for begin, end in pairwise(bounds.tolist()):
        entries = _collect_entries(events, devices, slice(begin, end))
        at = np.flatnonzero(entries.call >= 0)
        if not len(at):
            continue
        call = entries.call[at]
        called = host.start_ns[call]
        ahead = at - np.searchsorted(np.sort(entries.start_ns), called)
        ahead = np.where(_find_unseen(host, entries, called), QUEUE_LIMIT, ahead)
        np.maximum.at(outstanding, call, ahead)
        np.maximum.at(level, call, int(ahead.max()))
    most = int(outstanding.max(initial=0))
    may_be_usual = most <= QUEUE_LIMIT + 1 and is_nvidia(events, host, makers)
    is_usual = may_be_usual and most >= QUEUE_NEARLY
    limit = None if is_usual else _find_level(host, outstanding, most)
    if limit is None and may_be_usual:
        limit = QUEUE_LIMIT
    return LaunchQueue(outstanding, level, limit)


def _find_level(host: HostTasks, outstanding: Ints, most: int) -> int | None:
    """Return how many launches were outstanding whenever a call waited, if that is ever the same.

    A queue of whatever depth fills up and stays full: then every launch lasts until a task is done,
    and no launch does before.
    """
    if most < LEAST_LEVEL:
        return None
    length = host.end_ns - host.start_ns
    full, below = outstanding >= FULL * most, (outstanding > 0) & (outstanding < HALF * most)
    launches = np.count_nonzero(outstanding > 0)
    if np.count_nonzero(full) < max(LEAST_CALLS, STAYS * launches):
        return None
    lasting = np.median(length[full])
    waits = lasting > LASTING_NS and (not below.any() or lasting > 2 * np.median(length[below]))
    return most if waits else None


def _collect_entries(events: Events, devices: DeviceTasks, lane: slice) -> _Entries:
    """Join the tasks of a stream that one call launched; of unrecorded calls by correlation."""
    call = devices.launch[lane]
    correlation = events.correlation[devices.event[lane]]
    alone = -2 - np.arange(len(call)) - int(correlation.max(initial=0))
    unrecorded = np.where(correlation >= 0, -2 - correlation, alone)
    _, first = np.unique(np.where(call >= 0, call, unrecorded), return_index=True)
    first.sort()
    return _Entries(call[first], devices.start_ns[lane][first])


def _find_unseen(host: HostTasks, entries: _Entries, called: Ints) -> Flags:
    """Tell which calls were made with a full queue of launches that the recording lacks.

    The stream's first recorded task then starts long after its call. Either about as many launches
    fit into this lag as a queue holds, or the calls meanwhile last as no call does by itself.
    """
    unseen = np.zeros(len(called), bool)
    lag = entries.start_ns[0] - called[0]
    if entries.call[0] < 0 or lag < LATE_NS or called[0] == called[-1]:
        return unseen
    before = called < entries.start_ns[0]
    within = host.end_ns[entries.call[entries.call >= 0][before]] - called[before]
    fitting = lag * (len(called) - 1) / (called[-1] - called[0])
    lasting = within[within > LASTING_NS].sum()
    meanwhile = max(int(called[before][-1] + within[-1] - called[0]), 1)
    if QUEUE_NEARLY <= fitting <= QUEUE_ABOUT or lasting > BLOCKED_SHARE * meanwhile:
        unseen |= before
    return unseen


def is_nvidia(events: Events, host: HostTasks, makers: Sequence[Device]) -> bool:
    """Tell by the devices' names and the API; a recording may lack the names."""
    is_other = host.is_call & events.named(_OTHER_CALLS, host.event)
    return not is_other.any() and not any(_OTHER_MAKERS.search(each.name) for each in makers)
