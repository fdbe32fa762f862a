"""Synchronisation calls: what each waits for, and how long after it they return.

In: host and device tasks of one rank. Out: entries of `Waits`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from foretrace.graph.infer.api_calls import (
    DEVICE,
    EVENT,
    LONG_NS,
    NONE,
    RETURN_NS,
    SLACK_NS,
    STREAM,
    SYNC_WORK_NS,
)
from foretrace.graph.infer.events import find_last
from foretrace.graph.infer.host_tasks import SYNC_CALLS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foretrace.graph.infer.api_calls import Calls, LaneLaunches, Waits
    from foretrace.graph.infer.device_tasks import DeviceTasks
    from foretrace.graph.infer.events import Events
    from foretrace.graph.infer.host_tasks import HostTasks

    Ints = NDArray[np.int64]

_STREAM_SYNC, _EVENT_SYNC, _FREE = (re.compile(text) for text in ("Stream", "Event", "Free"))


def explain_syncs(
    events: Events, host: HostTasks, devices: DeviceTasks, calls: Calls, waits: Waits
) -> None:
    """Give every synchronisation its scope, its cost and its return lag.

    The wait is believed only where the call returns right after the awaited work. Otherwise
    something untraced was waited for: the length stays work and is counted.
    """
    syncs = np.flatnonzero(host.is_call & events.named(SYNC_CALLS, host.event))
    if not len(syncs):
        return
    of_stream, of_event = (events.named(p, host.event[syncs]) for p in (_STREAM_SYNC, _EVENT_SYNC))
    scope = np.select([of_stream, of_event], [STREAM, EVENT], DEVICE)
    lane = np.where(of_stream, _find_awaited_lane(events, host, devices, syncs), -1)
    begin, end = host.start_ns[syncs], host.end_ns[syncs]
    task, done = _find_latest_launched(devices, calls.on_lane, begin)
    possible = np.where(done <= end + SLACK_NS, done, -1)
    released = np.where(
        lane >= 0, done[lane, np.arange(len(syncs))], possible.max(axis=0, initial=-1)
    )
    lag = end - released
    explained = (released > begin) & (lag >= -SLACK_NS) & (lag <= RETURN_NS)
    by_event = (scope == EVENT) & explained & (lag >= 0)
    source = task[np.argmax(done == released, axis=0), np.arange(len(syncs))]
    waits.event_task[syncs[by_event]] = source[by_event]
    is_free = events.named(_FREE, host.event[syncs])
    is_unclear = ((scope == STREAM) & (lane < 0)) | (is_free & ~explained)
    waits.wait[syncs] = np.where(is_unclear, NONE, scope)
    waits.wait_lane[syncs] = lane
    waits.return_ns[syncs[explained]] = np.clip(lag[explained], 0, None)
    waits.work_ns[syncs[explained]] = np.minimum(end - begin, SYNC_WORK_NS)[explained]
    _share_return(waits, syncs, events.name[host.event[syncs]])
    waits.counts["syncs"] = len(syncs)
    waits.counts["syncs that waited for something untraced"] = int(
        (~explained & (end - begin > LONG_NS)).sum()
    )


def _find_awaited_lane(events: Events, host: HostTasks, devices: DeviceTasks, syncs: Ints) -> Ints:
    """Lane a stream synchronisation waits for: by its record, else its thread's last launch's."""
    lane = _find_lane_before(host, devices, syncs)
    records = np.flatnonzero(events.is_kind("sync"))
    at = find_last(events.correlation[records], events.correlation[host.event[syncs]])
    named = np.where(at >= 0, events.column("wait_stream")[records[at]] if len(records) else -1, -1)
    last = find_last(devices.stream, named)
    return np.where(last >= 0, devices.lane[last], lane)


def _find_lane_before(host: HostTasks, devices: DeviceTasks, syncs: Ints) -> Ints:
    lane = np.full(len(host), -1, np.int64)
    linked = devices.launch >= 0
    lane[devices.launch[linked]] = devices.lane[linked]
    launchers = np.flatnonzero(lane >= 0)
    slot = np.searchsorted(launchers, syncs) - 1
    if not len(launchers):
        return np.full(len(syncs), -1, np.int64)
    before = launchers[slot]
    same_thread = (slot >= 0) & (host.thread[before] == host.thread[syncs])
    return np.where(same_thread, lane[before], -1)


def _find_latest_launched(
    devices: DeviceTasks, on_lane: list[LaneLaunches], moments: Ints
) -> tuple[Ints, Ints]:
    """Per lane and moment: the last task launched before it, and that task's end (−1: none)."""
    task = np.full((len(on_lane), len(moments)), -1, np.int64)
    done = np.full((len(on_lane), len(moments)), -1, np.int64)
    for lane, (called, tasks) in enumerate(on_lane):
        slot = np.searchsorted(called, moments) - 1
        exists = slot >= 0
        task[lane, exists] = tasks[slot[exists]]
        done[lane, exists] = devices.end_ns[tasks[slot[exists]]]
    return task, done


def _share_return(waits: Waits, syncs: Ints, api: Ints) -> None:
    """Give every call of one API the median return lag of the calls of it that waited."""
    for value in np.unique(api):
        same = syncs[api == value]
        lags = waits.return_ns[same][waits.return_ns[same] > 0]
        waits.return_ns[same] = int(np.median(lags)) if len(lags) else 0
