"""What is known of every host call before its waiting is explained.

In: host and device tasks of one rank. Out: usual lengths, launch order, launches outstanding.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numba import njit

from foretrace.graph.model import WAITS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foretrace.graph.infer.device_tasks import DeviceTasks
    from foretrace.graph.infer.events import Events
    from foretrace.graph.infer.host_tasks import HostTasks

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]

LONG_NS = 30_000
"""Shorter calls are not looked at: scheduling noise."""
LONG_FACTOR = 4
"""... nor calls within this multiple of their API's median."""
RETURN_NS = 200_000
"""A call that returns within this of the work it waited for, waited for it."""
SLACK_NS = 2_000
"""Timestamps of host and device agree no better."""
SYNC_WORK_NS = 5_000
"""Unblocked cost of a synchronisation, at most."""

NONE, DEVICE, STREAM, EVENT, OWN = range(len(WAITS))


@dataclass
class Waits:
    """Per host task: unblocked cost, what it waits for, and why it was long.

    ``event_task`` names the device task an event synchronisation waited for (−1: none).
    ``holds_lock`` marks calls that stall other threads' calls while they wait.
    ``return_ns`` is the time from the end of the awaited work to the return, per wait.
    """

    work_ns: Ints
    wait: NDArray[np.int8]
    wait_lane: Ints
    event_task: Ints
    holds_lock: Flags
    locked: Flags
    queued: Flags
    return_ns: Ints
    queue_depth: int | None = None
    counts: dict[str, int] = field(default_factory=dict)

    @classmethod
    def none(cls, host: HostTasks) -> Waits:
        """Return that nothing waits."""
        rows = len(host)
        return cls(
            work_ns=host.end_ns - host.start_ns,
            wait=np.zeros(rows, np.int8),
            wait_lane=np.full(rows, -1, np.int64),
            event_task=np.full(rows, -1, np.int64),
            holds_lock=np.zeros(rows, bool),
            locked=np.zeros(rows, bool),
            queued=np.zeros(rows, bool),
            return_ns=np.zeros(rows, np.int64),
        )


class LaneLaunches(NamedTuple):
    """The launches of one stream in host order: call starts, and the device task of each."""

    called_ns: Ints
    task: Ints


@dataclass(frozen=True)
class Calls:
    """Per host task: its API's usual length, and whether the call is suspiciously long.

    ``outstanding`` counts the launches of its stream that had not started when it launched.
    """

    usual_ns: Ints
    is_long: Flags
    outstanding: Ints
    on_lane: list[LaneLaunches]


def measure_calls(events: Events, host: HostTasks, devices: DeviceTasks) -> Calls:
    """Measure every call of one rank against its kind."""
    length = host.end_ns - host.start_ns
    usual = _find_usual(events.name[host.event], length, host.is_call)
    lasting = np.flatnonzero(host.is_call & (length > LONG_NS))
    is_long = np.zeros(len(host), bool)
    is_long[lasting] = length[lasting] > LONG_FACTOR * usual[lasting]
    on_lane = order_launches(host, devices)
    return Calls(usual, is_long, _count_outstanding(host, devices, on_lane), on_lane)


def order_launches(host: HostTasks, devices: DeviceTasks) -> list[LaneLaunches]:
    """Return the launches of every stream, ordered by call start."""
    linked = np.flatnonzero(devices.launch >= 0)
    called = host.start_ns[devices.launch[linked]]
    bounds = np.searchsorted(devices.lane[linked], np.arange(devices.lanes + 1))
    lanes = []
    for begin, end in pairwise(bounds.tolist()):
        order = begin + np.argsort(called[begin:end], kind="stable")
        lanes.append(LaneLaunches(called[order], linked[order]))
    return lanes


def _count_outstanding(host: HostTasks, devices: DeviceTasks, on_lane: list[LaneLaunches]) -> Ints:
    pending = np.zeros(len(host), np.int64)
    for called, tasks in on_lane:
        started = np.sort(devices.start_ns[tasks])
        ahead = np.arange(len(tasks)) - np.searchsorted(started, called)
        np.maximum.at(pending, devices.launch[tasks], ahead)
    return pending


@njit(cache=True)
def _find_usual(code: Ints, length: Ints, is_call: Flags) -> Ints:
    """Per call: the median length of its API, without the calls that look blocked; else 0."""
    names = max(code.max(), 0) + 2
    first = np.zeros(names + 1, np.int64)
    for i in range(len(code)):
        if is_call[i]:
            first[code[i] + 2] += 1
    for name in range(names):
        first[name + 1] += first[name]
    lengths = np.empty(first[names], np.int64)
    place = first[:names].copy()
    for i in range(len(code)):
        if is_call[i]:
            lengths[place[code[i] + 1]] = length[i]
            place[code[i] + 1] += 1
    median = np.zeros(names, np.int64)
    for name in range(names):
        same = np.sort(lengths[first[name] : first[name + 1]])
        if len(same):
            limit = max(LONG_NS, LONG_FACTOR * same[len(same) // 2])
            short = np.searchsorted(same, limit, side="right")
            median[name] = same[short // 2] if short else same[0]
    usual = np.zeros(len(code), np.int64)
    for i in range(len(code)):
        if is_call[i]:
            usual[i] = median[code[i] + 1]
    return usual
