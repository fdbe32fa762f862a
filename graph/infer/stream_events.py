"""Waits between streams: ``cudaStreamWaitEvent`` and its kin as edges between device tasks.

In: host and device tasks of one rank. Out: edges with the inference that found each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foretrace.graph.infer.api_calls import order_launches
from foretrace.graph.infer.events import find_last
from foretrace.graph.infer.host_tasks import WAIT_EVENT_CALLS
from foretrace.graph.infer.stream_gaps import BACK_TO_BACK_NS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foretrace.graph.infer.api_calls import LaneLaunches
    from foretrace.graph.infer.device_tasks import DeviceTasks
    from foretrace.graph.infer.events import Events
    from foretrace.graph.infer.host_tasks import HostTasks

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]


class StreamEdges(NamedTuple):
    """Device-to-device edges; ``recorded`` ones were named by the recording, others inferred."""

    src: Ints
    dst: Ints
    recorded: Flags


class _Waiting(NamedTuple):
    """Per wait call: the waiting lane, the awaited lane (−1: unknown), when it was recorded."""

    lane: Ints
    source: Ints
    recorded_ns: Ints


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
        return StreamEdges(none, none, none.astype(bool))
    waiting = _read_waits(events, devices, host, calls)
    per_lane = order_launches(host, devices)
    called_ns = host.start_ns[calls]
    target = _find_next_launch(per_lane, waiting.lane, called_ns)
    own_lanes = _find_lanes(devices, group)[:, group[calls]]
    edges: list[StreamEdges] = []
    for lane, launches in enumerate(per_lane):
        named = (waiting.source == lane) & (target >= 0)
        guess = (waiting.source < 0) & (target >= 0) & (waiting.lane != lane) & own_lanes[lane]
        moment = np.where(named, waiting.recorded_ns, called_ns)
        slot = np.searchsorted(launches.called_ns, moment) - 1
        slot = _walk_back(slot, guess, devices, launches.task, target)
        has_source = (named | guess) & (slot >= 0)
        edges.append(
            StreamEdges(launches.task[slot[has_source]], target[has_source], named[has_source])
        )
    src, dst, recorded = (np.concatenate(column) for column in zip(*edges, strict=True))
    keep = devices.lane[src] != devices.lane[dst]
    src, dst, recorded = src[keep], dst[keep], recorded[keep]
    _, first = np.unique(src * len(devices) + dst, return_index=True)
    return StreamEdges(src[first], dst[first], recorded[first])


def _read_waits(events: Events, devices: DeviceTasks, host: HostTasks, calls: Ints) -> _Waiting:
    """Read the waits off their synchronisation records, else off the thread's next launch."""
    of_call = events.correlation[host.event]
    records = np.flatnonzero(events.is_kind("sync") & (events.correlation >= 0))
    at = find_last(events.correlation[records], of_call[calls])
    lane = _find_next_lane(devices, host, calls)
    source = np.full(len(calls), -1, np.int64)
    recorded_ns = host.start_ns[calls].copy()
    named = np.flatnonzero(at >= 0)
    record = records[at[named]]
    waiter = find_last(devices.stream, events.column("stream")[record])
    lane[named] = np.where(waiter >= 0, devices.lane[waiter], lane[named])
    identified = np.flatnonzero(host.is_call & (of_call >= 0))
    recorder = find_last(of_call[identified], events.column("wait_event")[record])
    awaited = find_last(devices.stream, events.column("wait_stream")[record])
    both = (recorder >= 0) & (awaited >= 0)
    source[named[both]] = devices.lane[awaited[both]]
    recorded_ns[named[both]] = host.start_ns[identified[recorder[both]]]
    return _Waiting(lane, source, recorded_ns)


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
