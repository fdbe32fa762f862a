"""Waiting separated from work in API calls.

In: host and device tasks of one rank. Out: what each call costs when nothing blocks it, and
what it waits for. Each blocked call gets exactly one cause, looked for in this order:
synchronisation, its own blocking copy, a full launch queue, the driver lock; else its length stays.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from foretrace.graph.infer.events import match_names
from foretrace.graph.infer.tasks.api_calls import (
    NONE,
    OWN,
    RETURN_NS,
    SLACK_NS,
    SYNC_WORK_NS,
    Calls,
    Waits,
    measure_calls,
)
from foretrace.graph.infer.tasks.device_tasks import MEMCPY
from foretrace.graph.infer.tasks.host_tasks import SYNC_CALLS
from foretrace.graph.infer.tasks.launch_queue import count_outstanding
from foretrace.graph.infer.waits.syncs import explain_syncs
from foretrace.graph.state import Doubt

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from foretrace.graph.infer.events import Events
    from foretrace.graph.infer.tasks.device_tasks import DeviceTasks
    from foretrace.graph.infer.tasks.host_tasks import HostTasks
    from foretrace.graph.infer.tasks.launch_queue import LaunchQueue
    from foretrace.graph.model import Rules
    from foretrace.tracer.trace import Device

    Ints = NDArray[np.int64]

STAGING_NS = 300_000
"""A pageable upload returns within this of its copy's end, before or after."""
PAGEABLE_BYTES = 64 * 1024
"""Smaller pageable uploads are staged and return at once."""
MOST = 0.5
"""Share of a class that must return with its copy for the class to count as blocking."""
_DOWNLOADS = re.compile("DtoH")
_UPLOADS = re.compile(r"HtoD(?! \(Pinned)")
"""From pinned memory an upload never waits; a short one only looks as if it did."""
BEFORE_NS, AFTER_NS = 20_000, 100_000
"""A stalled call ends so little before, or so little after, the call that held the lock."""


def split_waiting(
    events: Events,
    host: HostTasks,
    devices: DeviceTasks,
    rules: Rules,
    makers: Sequence[Device] = (),
) -> Waits:
    """Find the unblocked cost and the wait of every host task of one rank.

    Parameters
    ----------
    makers
        The recording's devices by name: the launch queue is imposed on NVIDIA's only.
    """
    waits = Waits.none(host)
    if not len(host) or not len(devices):
        return waits
    queue = count_outstanding(events, host, devices, makers)
    waits.queue_depth = queue.limit
    calls = measure_calls(events, host, devices, queue)
    if not rules.split_waiting:
        return waits
    explain_syncs(events, host, devices, calls, waits)
    _explain_blocking_copies(events, host, devices, calls, waits)
    _explain_full_queue(events, host, calls, queue, waits)
    _explain_driver_lock(events, host, calls, waits)
    left = calls.is_long & (waits.wait == NONE) & ~waits.queued & ~waits.locked
    waits.counts["long calls kept as work"] = int(left.sum())
    waits.counts["long calls kept as work, us"] = int(waits.work_ns[left].sum() // 1000)
    return waits


def _explain_blocking_copies(
    events: Events, host: HostTasks, devices: DeviceTasks, calls: Calls, waits: Waits
) -> None:
    """Find blocking copies class by class: API, kind of copy, large or small.

    Where most of a class return with their copy, all of it waits for its own work. A member that
    returned earlier costs what its API usually does; one that returned later waited, besides, for
    something untraced. Downloads hold the driver's lock meanwhile.
    """
    copies = np.flatnonzero((devices.kind == MEMCPY) & (devices.launch >= 0))
    if not len(copies):
        return
    call = devices.launch[copies]
    event = devices.event[copies]
    name, api = events.name[event], events.name[host.event[call]]
    is_large = np.nan_to_num(events.column("bytes")[event], nan=0) > PAGEABLE_BYTES
    is_download = match_names(events.names, _DOWNLOADS)[name]
    is_upload = match_names(events.names, _UPLOADS)[name]
    late = host.end_ns[call] - devices.end_ns[copies]
    returns = np.where(
        is_download, (late >= -SLACK_NS) & (late <= RETURN_NS), np.abs(late) <= STAGING_NS
    )
    returns &= is_download | (is_upload & is_large)
    group = np.stack([api.astype(np.int64), name, is_large])
    for key in np.unique(group, axis=1).T:
        same = (group == key[:, None]).all(axis=0)
        if returns[same].mean() <= MOST:
            continue
        usual = int(np.median(late[returns & same]))
        overdue = same & ~returns & (late > usual)
        waited, early = (returns & same) | overdue, same & ~returns & ~overdue
        waits.wait[call[same]] = OWN
        waits.return_ns[call[same]] = np.where(overdue[same], late[same], usual)
        waits.untraced_ns[call[overdue]] = late[overdue] - usual
        for members, cost in ((waited, SYNC_WORK_NS), (early, calls.usual_ns[call[early]])):
            waits.work_ns[call[members]] = np.minimum(waits.work_ns[call[members]], cost)
        if is_download[same].all():
            waits.holds_lock[call[same]] = True
    waits.counts["blocking copies"] = int((waits.wait == OWN).sum())


def _explain_full_queue(
    events: Events, host: HostTasks, calls: Calls, queue: LaunchQueue, waits: Waits
) -> None:
    """Find the launches that waited for a free slot of their stream's queue."""
    if queue.limit is None:
        return
    beyond = waits.work_ns > calls.usual_ns
    waits.queued = (queue.is_full & beyond) | (queue.is_near & calls.is_long)
    waits.queued &= waits.wait == NONE
    waits.work_ns[waits.queued] = calls.usual_ns[waits.queued]
    waits.counts["launches blocked by a full queue"] = int(waits.queued.sum())
    guessed = np.flatnonzero(waits.queued & calls.is_guess)
    if len(guessed):
        names = np.unique(events.name[host.event[guessed]])
        waits.assumed = tuple(events.names[name] for name in names.tolist())
        cost = calls.usual_ns[guessed].max() / 1_000
        waits.doubts.append(
            Doubt(
                "launch-cost-unknown",
                f"every launch waited for a full launch queue, none shows what it costs by itself: "
                f"{cost:.0f} us are assumed; record steps before the queue is full",
                ", ".join(waits.assumed),
            )
        )


def _explain_driver_lock(events: Events, host: HostTasks, calls: Calls, waits: Waits) -> None:
    """Find the stalled calls, and the calls that held the lock.

    First those that began while a blocking download was waiting and did not end before it; then
    those that ended together with another long call which began no later.
    """
    long_call = calls.is_long & ~waits.queued
    is_sync = np.zeros(len(host), bool)
    at = np.flatnonzero(long_call)
    is_sync[at] = events.named(SYNC_CALLS, host.event[at])
    suspects = np.flatnonzero(long_call & (waits.wait == NONE) & ~is_sync)
    usual = calls.usual_ns
    stalled, holder = _pair_begun_during(
        host, suspects, np.flatnonzero(waits.holds_lock & long_call)
    )
    waits.locked[stalled] = True
    beyond = np.clip(host.end_ns[stalled] - host.end_ns[holder] - AFTER_NS, 0, None)
    waits.work_ns[stalled] = usual[stalled] + beyond
    left = suspects[~waits.locked[suspects]]
    for call, near in _pair_ended_together(host, left, np.flatnonzero(long_call & ~is_sync)):
        holders = near[~waits.locked[near]]
        if len(holders):
            waits.locked[call] = True
            waits.work_ns[call] = usual[call]
            waits.holds_lock[holders] = True
    waits.counts["calls blocked by the driver lock"] = int(waits.locked.sum())


def _pair_begun_during(host: HostTasks, calls: Ints, holders: Ints) -> tuple[Ints, Ints]:
    """Pair each call with another thread's holder that it began during and outlasted."""
    if not len(holders):
        return holders, holders
    holders = holders[np.argsort(host.start_ns[holders], kind="stable")]
    slot = np.searchsorted(host.start_ns[holders], host.start_ns[calls], side="right") - 1
    calls, holder = calls[slot >= 0], holders[slot[slot >= 0]]
    during = host.start_ns[calls] < host.end_ns[holder]
    outlasts = host.end_ns[calls] >= host.end_ns[holder] - BEFORE_NS
    paired = during & outlasts & (host.thread[calls] != host.thread[holder])
    return calls[paired], holder[paired]


def _pair_ended_together(host: HostTasks, calls: Ints, holders: Ints) -> Iterator[tuple[int, Ints]]:
    """Pair each call with the other threads' holders that began no later and end with it."""
    holders = holders[np.argsort(host.end_ns[holders], kind="stable")]
    ends = host.end_ns[holders]
    for call in calls.tolist():
        end = host.end_ns[call]
        first, last = np.searchsorted(ends, [end - AFTER_NS, end + BEFORE_NS + 1])
        near = holders[first:last]
        other = host.thread[near] != host.thread[call]
        yield call, near[other & (host.start_ns[near] <= host.start_ns[call])]
