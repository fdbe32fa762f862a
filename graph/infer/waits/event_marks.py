"""Which device task an event synchronisation waits for: the last before the event was recorded.

In: host and device tasks of one rank, and its event synchronisations. Out: a task for each.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from foretrace.graph.infer.events import find_last
from foretrace.graph.infer.tasks.api_calls import LONG_NS, RETURN_NS, SLACK_NS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foretrace.graph.infer.events import Events
    from foretrace.graph.infer.tasks.api_calls import LaneLaunches
    from foretrace.graph.infer.tasks.device_tasks import DeviceTasks
    from foretrace.graph.infer.tasks.host_tasks import HostTasks

    Ints = NDArray[np.int64]

_RECORD = re.compile(r"^(cuda|hip|cu)EventRecord")
_EVENT_SYNC = re.compile("EventSync")
MARKS = 256
"""So many of the latest event records are looked at, where nothing names the right one."""
PROMPT_NS = 30_000
"""A call that returns within this of a task waited for it, though no event record tells so."""


def find_marked_tasks(
    events: Events,
    host: HostTasks,
    devices: DeviceTasks,
    on_lane: list[LaneLaunches],
    syncs: Ints,
    record: Ints,
) -> Ints:
    """Return the task before the event that each of *syncs* waits for; −1: not told.

    The synchronisation's *record* names the event's. Elsewhere, if the call lasts, it is that of
    the event records whose work was done last when the call returned; where none fits, as in
    recordings without event records, it is the task after which the call returned at once.

    Parameters
    ----------
    record
        Event row of each call's synchronisation record; −1: none.
    """
    marked = np.full(len(syncs), -1, np.int64)
    of_event = np.flatnonzero(events.named(_EVENT_SYNC, host.event[syncs]))
    if not len(of_event) or not len(devices):
        return marked
    begin, end = host.start_ns[syncs], host.end_ns[syncs]
    marks = np.flatnonzero(host.is_call & events.named(_RECORD, host.event))
    marks = marks[np.argsort(host.start_ns[marks], kind="stable")]
    named = of_event[record[of_event] >= 0]
    marked[named] = _find_named(events, host, devices, on_lane, marks, record[named])
    too_late = (marked >= 0) & (devices.end_ns[marked] > end + SLACK_NS)
    marked[too_late] = -1
    candidates = _find_last_tasks(host, devices, on_lane, marks)
    waited = (marked[of_event] < 0) & (end - begin > LONG_NS)[of_event]
    for at in of_event[waited].tolist():
        last = int(np.searchsorted(host.start_ns[marks], begin[at]))
        near = candidates[max(last - MARKS, 0) : last]
        marked[at] = _find_latest(devices, near[near >= 0], begin[at], end[at], RETURN_NS)
        if marked[at] < 0:
            running = _find_running(devices, host, begin[at])
            marked[at] = _find_latest(devices, running, begin[at], end[at], PROMPT_NS)
    return marked


def find_lane_before(host: HostTasks, devices: DeviceTasks, calls: Ints) -> Ints:
    """Return the lane that the thread of each of *calls* launched on last; −1: none."""
    lane = np.full(len(host), -1, np.int64)
    linked = np.flatnonzero(devices.launch >= 0)
    linked = linked[np.argsort(-devices.start_ns[linked], kind="stable")]
    lane[devices.launch[linked]] = devices.lane[linked]  # of a graph: where it begins
    launchers = np.flatnonzero(lane >= 0)
    slot = np.searchsorted(launchers, calls) - 1
    if not len(launchers):
        return np.full(len(calls), -1, np.int64)
    before = launchers[slot]
    same_thread = (slot >= 0) & (host.thread[before] == host.thread[calls])
    return np.where(same_thread, lane[before], -1)


def _find_named(
    events: Events,
    host: HostTasks,
    devices: DeviceTasks,
    on_lane: list[LaneLaunches],
    marks: Ints,
    record: Ints,
) -> Ints:
    """Return the last task before the event record that each synchronisation record names.

    One made before the recording is told from the work by its correlation, which only grows.
    """
    stream = events.column("wait_stream")[record]
    lane = devices.find_lanes(events.column("device")[record].astype(np.int64), stream)
    wanted = events.column("wait_event")[record]
    at = find_last(events.correlation[host.event[marks]], wanted)
    task = np.full(len(record), -1, np.int64)
    if len(marks):
        seen = np.flatnonzero(at >= 0)
        mark = marks[at[seen]]
        own = find_lane_before(host, devices, mark)
        where = np.where(lane[seen] >= 0, lane[seen], own)
        task[seen] = _find_before(on_lane, where, host.start_ns[mark])
    correlation = events.correlation[devices.event]
    for row in np.flatnonzero((task < 0) & (lane >= 0) & (wanted >= 0)).tolist():
        earlier = np.flatnonzero((devices.lane == lane[row]) & (correlation < wanted[row]))
        task[row] = earlier[-1] if len(earlier) else -1
    return task


def _find_last_tasks(
    host: HostTasks, devices: DeviceTasks, on_lane: list[LaneLaunches], marks: Ints
) -> Ints:
    """Return the last task before each event record on the stream its thread launched on last."""
    return _find_before(on_lane, find_lane_before(host, devices, marks), host.start_ns[marks])


def _find_before(on_lane: list[LaneLaunches], lane: Ints, moments: Ints) -> Ints:
    """Return the last task launched on each *lane* before each moment; −1: none."""
    task = np.full(len(lane), -1, np.int64)
    for number, (called, tasks) in enumerate(on_lane):
        here = np.flatnonzero(lane == number)
        slot = np.searchsorted(called, moments[here]) - 1
        task[here[slot >= 0]] = tasks[slot[slot >= 0]]
    return task


def _find_latest(devices: DeviceTasks, tasks: Ints, begin: int, end: int, limit_ns: int) -> int:
    """Return which of *tasks* a call from *begin* to *end* returned right after; −1: none."""
    done = devices.end_ns[tasks]
    fits = (done > begin) & (done <= end + SLACK_NS) & (end - done <= limit_ns)
    return int(tasks[fits][np.argmax(done[fits])]) if fits.any() else -1


def _find_running(devices: DeviceTasks, host: HostTasks, begin: int) -> Ints:
    """Return the tasks launched before *begin* that had not ended by then."""
    launched = np.where(devices.launch >= 0, host.start_ns[devices.launch], begin - 1) < begin
    return np.flatnonzero(launched & (devices.end_ns > begin))
