"""Time in which streams stood still although everything that is known to hold them back was over.

In: host and device tasks of one rank, and what was inferred of their causes. Out: per device task
how long it waited for something that no recording shows. Such a wait stays as long as it was, after
every change: it is never dropped, and what it may have been is left to a doubt.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foretrace.graph.infer.cuda_graphs.graph_launches import (
    list_launches_with_graphs,
    pair_launches,
)
from foretrace.graph.infer.events import match_names
from foretrace.graph.infer.tasks.api_calls import OWN
from foretrace.graph.infer.tasks.device_tasks import COLLECTIVE, KERNEL, MEMCPY, find_reached

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from foretrace.graph.infer.cuda_graphs.graph_branches import GraphBranches
    from foretrace.graph.infer.events import Events
    from foretrace.graph.infer.tasks.api_calls import Waits
    from foretrace.graph.infer.tasks.device_tasks import DeviceTasks
    from foretrace.graph.infer.tasks.host_tasks import HostTasks
    from foretrace.graph.infer.waits.stream_events import StreamEdges

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]

IDLE_NS = 50_000
"""A stream that stands still for less does so for ordinary reasons: launches and gaps vary.

In 20 public recordings of one stream, longer waits that nothing explains make 0.3 % of a step at
most, all but one none at all.
"""
CONTENDED = 0.5
"""Of a wait in which other streams' kernels ran: then it was for them, or for room beside them."""
AFTER_NS = 20_000
"""A task that starts so little after a collective, having waited until then, waited for it."""
AFTER_KERNEL_NS = 5_000
"""The same of a collective and a kernel: kernels end more often by chance."""
SLACK_NS = 2_000
"""Timestamps of one device agree no better."""
_LONG_AGO = np.iinfo(np.int64).min // 4
_DIRECTIONS = tuple(re.compile(text) for text in ("DtoH", "HtoD"))


class UntracedWaits(NamedTuple):
    """How long each device task waited for nothing known, and edges that nothing recorded tells.

    Tasks *dst* waited until *src* of another stream ended.
    """

    wait_ns: Ints
    src: Ints
    dst: Ints
    lag_ns: Ints


class Cause(NamedTuple):
    """Device tasks *dst* that start no earlier than the end of *src*, and a lag."""

    src: Ints
    dst: Ints
    lag_ns: Ints | int


def list_causes(
    devices: DeviceTasks,
    host: HostTasks,
    gates: StreamEdges | None,
    event_lag: int,
    branches: GraphBranches | None,
    stream_lags: Ints,
) -> list[Cause]:
    """Return what device tasks of one stream wait for on others, as far as it is known."""
    causes = [] if gates is None else [Cause(gates.src, gates.dst, event_lag)]
    if branches is not None:
        causes.append(Cause(branches.src, branches.dst, branches.lag_ns))
        everything = np.arange(len(devices))
        for launches in list_launches_with_graphs(devices, host, everything).values():
            pairs = np.array([*pair_launches(devices, launches)], np.int64).reshape(-1, 3)
            src, dst, _ = pairs[pairs[:, 2] == 0].T
            causes.append(Cause(src, dst, stream_lags[dst]))
    return causes


def find_untraced_waits(
    events: Events,
    devices: DeviceTasks,
    host: HostTasks,
    waits: Waits,
    launch_lags: Ints,
    stream_lags: Ints,
    causes: Sequence[Cause],
) -> UntracedWaits:
    """Return per device task how long after all its causes it started; 0 where that is usual.

    Causes are its launch, the task before it on its stream, what its stream waited for (*causes*),
    the copy engine, and kernels of other streams that ran meanwhile and may have left no room.
    A stream's first recorded task may follow work that was launched before the recording, and one
    whose launch is not recorded may have been launched late. What starts right after a collective,
    and a collective right after a kernel, waited for its data.
    """
    ready = _find_ready(devices, host, waits, launch_lags, stream_lags)
    for cause in causes:
        np.maximum.at(ready, cause.dst, devices.end_ns[cause.src] + cause.lag_ns)
    ready = np.where(_is_told(devices, waits), ready, devices.start_ns)
    suspects = np.flatnonzero(devices.start_ns - ready > IDLE_NS)
    free = ready.copy()
    for device in np.unique(devices.device[suspects]):
        here = suspects[devices.device[suspects] == device]
        free[here] = _find_room(events, devices, here, ready[here])
    wait = np.where(devices.start_ns - free > IDLE_NS, devices.start_ns - free, 0)
    late = np.flatnonzero(wait)
    source = _find_data(devices, late)
    src, dst = source[source >= 0], late[source >= 0]
    wait[dst] = 0
    return UntracedWaits(
        wait, src, dst, np.clip(devices.start_ns[dst] - devices.end_ns[src], 0, None)
    )


def _find_ready(
    devices: DeviceTasks, host: HostTasks, waits: Waits, launch_lags: Ints, stream_lags: Ints
) -> Ints:
    """Return when launch and stream order allow each task to start; long ago: both unknown."""
    linked, is_first = devices.launch >= 0, devices.before() < 0
    ready = np.where(is_first, _LONG_AGO, find_reached(devices.end_ns, devices.lane) + stream_lags)
    if not len(host):
        return ready
    call = np.where(linked, devices.launch, 0)
    is_held = waits.queued[call] | waits.locked[call]
    called = np.where(is_held, host.end_ns[call] - waits.work_ns[call], host.start_ns[call])
    return np.maximum(ready, np.where(linked, called + launch_lags, _LONG_AGO))


def _is_told(devices: DeviceTasks, waits: Waits) -> Flags:
    """Tell which tasks' launch, and the work before them, are both recorded.

    No work precedes the first task of a stream for which its own call waited. Where no task has a
    launch, none is missing.
    """
    linked, is_first = devices.launch >= 0, devices.before() < 0
    if not linked.any():
        return ~is_first
    waited = linked & (waits.wait[np.where(linked, devices.launch, 0)] == OWN)
    return linked & (~is_first | waited)


def _find_room(events: Events, devices: DeviceTasks, tasks: Ints, ready: Ints) -> Ints:
    """Return until when other streams of one device may have held back *tasks* of it."""
    others = np.flatnonzero(devices.device == devices.device[tasks[0]])
    free = ready.copy()
    for lane in np.unique(devices.lane[tasks]):
        mine = np.flatnonzero(devices.lane[tasks] == lane)
        foreign = others[devices.lane[others] != lane]
        on_engine = devices.kind[tasks[mine]] == MEMCPY
        kernels = foreign[devices.kind[foreign] == KERNEL]
        at = mine[~on_engine]
        free[at] = _wait_for_kernels(devices, kernels, tasks[at], ready[at])
        name = events.name[devices.event]
        for direction in _DIRECTIONS:
            same = match_names(events.names, direction)[name] & (devices.kind == MEMCPY)
            at = mine[on_engine & same[tasks[mine]]]
            copies = foreign[same[foreign]]
            free[at] = np.maximum(ready[at], _find_last_end(devices, copies, tasks[at]))
    return free


def _find_last_end(devices: DeviceTasks, others: Ints, tasks: Ints) -> Ints:
    """Return the last end of *others* before each of *tasks* starts; long ago: none."""
    ends = np.sort(devices.end_ns[others])
    slot = np.searchsorted(ends, devices.start_ns[tasks] + SLACK_NS, side="right") - 1
    return np.where(slot >= 0, np.append(ends, _LONG_AGO)[slot], _LONG_AGO)


def _find_data(devices: DeviceTasks, tasks: Ints) -> Ints:
    """Return the task of another stream whose end each of *tasks* waited for; −1: none.

    It is a collective; for collectives it may be a kernel.
    """
    source = np.full(len(tasks), -1, np.int64)
    moves = devices.kind >= COLLECTIVE
    for sources, within, users in (
        (moves, AFTER_NS, source < 0),
        (devices.kind == KERNEL, AFTER_KERNEL_NS, moves[tasks]),
    ):
        ends = np.flatnonzero(sources)
        ends = ends[np.argsort(devices.end_ns[ends], kind="stable")]
        for at in np.flatnonzero(users & (source < 0)).tolist():
            start = devices.start_ns[tasks[at]]
            low, high = np.searchsorted(devices.end_ns[ends], [start - within, start + SLACK_NS])
            near = ends[low:high]
            near = near[
                (devices.lane[near] != devices.lane[tasks[at]])
                & (devices.device[near] == devices.device[tasks[at]])
                & (devices.start_ns[near] < start)
            ]
            source[at] = near[-1] if len(near) else -1
    return source


def _wait_for_kernels(devices: DeviceTasks, others: Ints, tasks: Ints, ready: Ints) -> Ints:
    """Return until when kernels of other streams explain a wait: those that ran through most of it.

    Nothing is left to explain where one still runs when the task starts: it may start beside the
    last blocks of that one.
    """
    if not len(others):
        return ready
    order = others[np.argsort(devices.start_ns[others], kind="stable")]
    begin, end = devices.start_ns[order], np.maximum.accumulate(devices.end_ns[order])
    begin = np.maximum(begin, np.append(begin[:1], end[:-1]))
    busy = np.append(0, np.cumsum(end - begin))
    start = devices.start_ns[tasks]

    def busy_until(moment: Ints) -> Ints:
        slot = np.searchsorted(begin, moment, side="right")
        last = np.maximum(slot - 1, 0)
        beyond = np.where(slot > 0, np.clip(end[last] - moment, 0, None), 0)
        return busy[slot] - beyond

    covered = busy_until(start) - busy_until(ready)
    is_contended = covered > CONTENDED * (start - ready)
    slot = np.searchsorted(begin, start, side="right") - 1
    until = np.where(slot >= 0, np.minimum(end[np.maximum(slot, 0)], start), _LONG_AGO)
    return np.where(is_contended, np.maximum(ready, until), ready)
