"""Waits between streams: ``cudaStreamWaitEvent`` and its kin as edges between device tasks.

In: host and device tasks of one rank. Out: edges with the inference that found each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foretrace.graph.infer.events import find_last
from foretrace.graph.infer.tasks.api_calls import order_launches
from foretrace.graph.infer.tasks.host_tasks import RECORD_EVENT_CALLS, WAIT_EVENT_CALLS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foretrace.graph.infer.events import Events
    from foretrace.graph.infer.tasks.api_calls import LaneLaunches
    from foretrace.graph.infer.tasks.device_tasks import DeviceTasks
    from foretrace.graph.infer.tasks.host_tasks import HostTasks

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]


BACK_TO_BACK_NS = 2_000
"""Starts and ends of queued work lie no further apart, nor do the clocks of what they tell."""
EVENT_LIMIT_NS = 20_000
"""A task that starts later after the event has another cause."""


class StreamEdges(NamedTuple):
    """Device-to-device edges; ``recorded`` ones were named by the recording, others inferred.

    ``unknown`` tasks waited for something that cannot be told.
    """

    src: Ints
    dst: Ints
    recorded: Flags
    unknown: Ints


class _Waiting(NamedTuple):
    """Per wait call: the waiting lane, the awaited lane (−1: unknown), and when it was recorded.

    ``timed`` tells where that moment is known; elsewhere it is the latest possible one.
    """

    lane: Ints
    source: Ints
    recorded_ns: Ints
    timed: Flags


def find_event_edges(
    events: Events, devices: DeviceTasks, host: HostTasks, group: Ints
) -> StreamEdges:
    """Find an edge for every wait of one stream for another.

    The recorded source is used where synchronisation records name it. Elsewhere the source is,
    on each other stream of the same thread *group*, the last task launched before the wait whose
    recorded end is consistent with the waiting task's start.

    Parameters
    ----------
    group
        Per host task: which threads work together (the training threads share one number).
    """
    calls = np.flatnonzero(host.is_call & events.named(WAIT_EVENT_CALLS, host.event))
    if not len(calls) or not len(devices.launching):
        none = np.empty(0, np.int64)
        return StreamEdges(none, none, none.astype(bool), none)
    waiting = _read_waits(events, devices, host, calls)
    per_lane = order_launches(host, devices)
    called_ns = host.start_ns[calls]
    target = _find_next_launch(per_lane, waiting.lane, called_ns)
    own_lanes = _find_lanes(devices, group)[:, group[calls]]
    edges: list[tuple[Ints, Ints, Flags]] = []
    for lane, launches in enumerate(per_lane):
        awaited = (waiting.source == lane) & (target >= 0)
        named = awaited & waiting.timed
        guess = (waiting.source < 0) & (target >= 0) & (waiting.lane != lane) & own_lanes[lane]
        guess |= awaited & ~named
        slot = np.searchsorted(launches.called_ns, waiting.recorded_ns) - 1
        slot = _walk_back(slot, guess, devices, launches.task, target)
        has_source = (named | guess) & (slot >= 0)
        edges.append((launches.task[slot[has_source]], target[has_source], named[has_source]))
    src, dst, recorded = (np.concatenate(column) for column in zip(*edges, strict=True))
    keep = devices.lane[src] != devices.lane[dst]
    src, dst, recorded = src[keep], dst[keep], recorded[keep]
    _, first = np.unique(src * len(devices) + dst, return_index=True)
    unknown = np.setdiff1d(target[target >= 0], dst)
    return StreamEdges(src[first], dst[first], recorded[first], unknown)


def estimate_event_lag(
    edges: StreamEdges, devices: DeviceTasks, host: HostTasks, latency_ns: Ints
) -> int:
    """Return what passes from the end of an awaited task to the start of the task that waits, ns.

    Only waits count that alone held their task back.
    """
    done = devices.end_ns[edges.src]
    lag = devices.start_ns[edges.dst] - done
    before = devices.before()[edges.dst]
    launch = devices.launch[edges.dst]
    possible = np.where(before >= 0, devices.end_ns[before], host.start_ns[launch])
    possible = np.maximum(possible, host.start_ns[launch] + latency_ns[edges.dst])
    binding = (done > possible) & (lag >= 0) & (lag < EVENT_LIMIT_NS)
    return int(np.median(lag[binding])) if binding.any() else 0


def _read_waits(events: Events, devices: DeviceTasks, host: HostTasks, calls: Ints) -> _Waiting:
    """Read the waits off their synchronisation records, else off the thread's next launch."""
    of_call = events.correlation[host.event]
    records = np.flatnonzero(events.is_kind("sync") & (events.correlation >= 0))
    at = find_last(events.correlation[records], of_call[calls])
    lane = _find_next_lane(devices, host, calls)
    source = np.full(len(calls), -1, np.int64)
    recorded_ns = _find_last_record(events, host, calls)
    timed = np.zeros(len(calls), bool)
    named = np.flatnonzero(at >= 0)
    record = records[at[named]]
    device = events.column("device")[record].astype(np.int64)
    waiter = devices.find_lanes(device, events.column("stream")[record])
    lane[named] = np.where(waiter >= 0, waiter, lane[named])
    identified = np.flatnonzero(host.is_call & (of_call >= 0))
    recorder = find_last(of_call[identified], events.column("wait_event")[record])
    source[named] = devices.find_lanes(device, events.column("wait_stream")[record])
    known = recorder >= 0
    timed[named[known]] = True
    recorded_ns[named[known]] = host.start_ns[identified[recorder[known]]]
    return _Waiting(lane, source, recorded_ns, timed)


def _find_last_record(events: Events, host: HostTasks, calls: Ints) -> Ints:
    """Start of the last recording of an event before each call: what it waits for is no later.

    Some recordings leave those calls out: then it is the call's own start.
    """
    begun = host.start_ns[calls]
    records = np.flatnonzero(host.is_call & events.named(RECORD_EVENT_CALLS, host.event))
    moments = np.sort(host.start_ns[records])
    slot = np.searchsorted(moments, begun, side="right") - 1
    return np.where(slot >= 0, moments[slot], begun) if len(moments) else begun


def _find_next_lane(devices: DeviceTasks, host: HostTasks, calls: Ints) -> Ints:
    """Lane of the next launch each call's thread makes (−1: none follows)."""
    linked = devices.launch >= 0
    lane = np.full(len(host), -1, np.int64)
    lane[devices.launch[linked]] = devices.lane[linked]
    launchers = np.flatnonzero(lane >= 0)
    slot = np.searchsorted(launchers, calls)
    following = launchers[np.minimum(slot, len(launchers) - 1)]
    same = (slot < len(launchers)) & (host.thread[following] == host.thread[calls])
    return np.where(same, lane[following], -1)


def _find_lanes(devices: DeviceTasks, group: Ints) -> Flags:
    """Tell whether a group of threads ever launches on a lane: [lane, group]."""
    used = np.zeros((devices.lanes, int(group.max(initial=0)) + 1), bool)
    linked = devices.launch >= 0
    used[devices.lane[linked], group[devices.launch[linked]]] = True
    return used


def _find_next_launch(per_lane: list[LaneLaunches], waiting: Ints, moment: Ints) -> Ints:
    """Return the first task launched on each waiting lane from *moment* on (−1: none)."""
    target = np.full(len(waiting), -1, np.int64)
    for lane, (called, tasks) in enumerate(per_lane):
        here = np.flatnonzero(waiting == lane)
        slot = np.searchsorted(called, moment[here])
        inside = slot < len(tasks)
        target[here[inside]] = tasks[slot[inside]]
    return target


def _walk_back(slot: Ints, guess: Flags, devices: DeviceTasks, tasks: Ints, target: Ints) -> Ints:
    """Step back from each guess until its recorded end is no later than its target's start."""
    if not len(tasks):
        return np.full_like(slot, -1)
    while True:
        late = guess & (slot >= 0)
        limit = devices.start_ns[target[late]] + BACK_TO_BACK_NS
        late[late] = devices.end_ns[tasks[slot[late]]] > limit
        if not late.any():
            return slot
        slot = np.where(late, slot - 1, slot)
