"""Synchronisation calls: what each waits for, and how long after it they return.

In: host and device tasks of one rank. Out: entries of `Waits`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from foretrace.graph.infer.events import find_last
from foretrace.graph.infer.tasks.api_calls import (
    DEVICE,
    EVENT,
    LONG_NS,
    NONE,
    RETURN_NS,
    SLACK_NS,
    STREAM,
    SYNC_WORK_NS,
)
from foretrace.graph.infer.tasks.host_tasks import SYNC_CALLS
from foretrace.graph.infer.waits.event_marks import PROMPT_NS, find_lane_before, find_marked_tasks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foretrace.graph.infer.events import Events
    from foretrace.graph.infer.tasks.api_calls import Calls, LaneLaunches, Waits
    from foretrace.graph.infer.tasks.device_tasks import DeviceTasks
    from foretrace.graph.infer.tasks.host_tasks import HostTasks

    Ints = NDArray[np.int64]

_STREAM_SYNC, _EVENT_SYNC, _FREE = (
    re.compile(text) for text in ("Stream|Queue|CommandList", "Event|Fence", "Free")
)


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
    record = _find_records(events, host, syncs)
    begin, end = host.start_ns[syncs], host.end_ns[syncs]
    task, done = _find_latest_launched(devices, calls.on_lane, begin)
    lane = np.full(len(syncs), -1, np.int64)
    streams = np.flatnonzero(of_stream)
    lane[streams] = _choose_stream(
        done[:, streams],
        begin[streams],
        end[streams],
        find_lane_before(host, devices, syncs[streams]),
        _find_named_lane(events, devices, record[streams]),
    )
    possible = np.where(done <= end + SLACK_NS, done, -1)
    if len(np.unique(devices.device)) > 1:
        of_device = np.flatnonzero(scope == DEVICE)
        lane[of_device] = _choose_device(
            devices,
            done[:, of_device],
            begin[of_device],
            end[of_device],
            find_lane_before(host, devices, syncs[of_device]),
            _find_named_device(events, devices, record[of_device]),
        )
        others = devices.device_of_lane[:, None] != devices.device_of_lane[lane]
        possible[others & (scope == DEVICE) & (lane >= 0)] = -1
    released = np.where(
        of_stream & (lane >= 0),
        done[lane, np.arange(len(syncs))],
        possible.max(axis=0, initial=-1),
    )
    source = task[np.argmax(done == released, axis=0), np.arange(len(syncs))]
    marked = find_marked_tasks(events, host, devices, calls.on_lane, syncs, record)
    by_mark = of_event & (marked >= 0)
    source = np.where(by_mark, marked, source)
    released = np.where(by_mark, devices.end_ns[marked], released)
    lag = end - released
    explained = (released > begin) & (lag >= -SLACK_NS) & (lag <= RETURN_NS)
    by_event = by_mark | (of_event & explained & (lag >= 0))
    waits.event_task[syncs[by_event]] = source[by_event]
    is_free = events.named(_FREE, host.event[syncs])
    is_unclear = ((scope == STREAM) & (lane < 0)) | (is_free & ~explained)
    waits.wait[syncs] = np.where(is_unclear, NONE, scope)
    waits.wait_lane[syncs] = np.where(is_unclear, -1, lane)
    waits.return_ns[syncs[explained]] = np.clip(lag[explained], 0, None)
    waits.work_ns[syncs[explained]] = np.minimum(end - begin, SYNC_WORK_NS)[explained]
    _share_return(waits, syncs, events.name[host.event[syncs]])
    strange = ~explained & (end - begin > LONG_NS)
    waited = strange & ~is_free
    waits.untraced_ns[syncs[waited]] = (end - begin)[waited]
    waits.counts["syncs"] = len(syncs)
    waits.counts["syncs that waited for something untraced"] = int(strange.sum())


def _find_records(events: Events, host: HostTasks, syncs: Ints) -> Ints:
    """Return the event row of each call's synchronisation record; −1: none."""
    rows = np.flatnonzero(events.is_kind("sync") & (events.correlation >= 0))
    at = find_last(events.correlation[rows], events.correlation[host.event[syncs]])
    return np.where(at >= 0, rows[at], -1) if len(rows) else at


def _find_named_lane(events: Events, devices: DeviceTasks, record: Ints) -> Ints:
    """Return the lane of the stream that each synchronisation record names; −1: none."""
    lane = np.full(len(record), -1, np.int64)
    named = record >= 0
    stream = events.column("wait_stream")[record[named]]
    device = events.column("device")[record[named]].astype(np.int64)
    lane[named] = devices.find_lanes(device, stream)
    return lane


def _find_named_device(events: Events, devices: DeviceTasks, record: Ints) -> Ints:
    """Return a lane of the device that each synchronisation record names; −1: none."""
    used, first = np.unique(devices.device_of_lane, return_index=True)
    device = np.where(record >= 0, events.column("device").astype(np.int64)[record], -1)
    at = np.minimum(np.searchsorted(used, device), len(used) - 1)
    return np.where(used[at] == device, first[at], -1)


def _choose_stream(done: Ints, begin: Ints, end: Ints, current: Ints, named: Ints) -> Ints:
    """Return the lane that each synchronisation of a stream waits for.

    That is the lane *named* by a record, else the one *current* to the thread, launched on last. A
    call that waited, and returned right after the last task of another lane instead, waited for it.
    """
    calls = np.arange(len(begin))
    waited = np.where((done > begin) & (done <= end + SLACK_NS), done, -1)
    latest = waited.argmax(axis=0)
    late = end - waited[latest, calls]
    own = end - np.where(current >= 0, done[current, calls], -1)
    explains = (own >= -SLACK_NS) & (own <= late + PROMPT_NS)
    is_other = (waited[latest, calls] >= 0) & (late <= PROMPT_NS) & ~explains
    return np.where(named >= 0, named, np.where(is_other, latest, current))


def _choose_device(
    devices: DeviceTasks, done: Ints, begin: Ints, end: Ints, current: Ints, named: Ints
) -> Ints:
    """Return a lane of the device that each call waits for, where a process uses several.

    That is the device of the lane *named* by a record. Else, of those that were done by then, it is
    the last one, if the call waited for it and returned right after; else the device last launched
    on, whose lane is *current*.
    """
    used, first = np.unique(devices.device_of_lane, return_index=True)
    latest = np.stack([done[devices.device_of_lane == each].max(axis=0) for each in used])
    latest = np.where(latest <= end + SLACK_NS, latest, -1)
    last = latest.max(axis=0)
    waited = (last > begin) & (end - last <= RETURN_NS)
    guess = np.where(waited, first[np.argmax(latest, axis=0)], current)
    return np.where(named >= 0, named, guess)


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
