"""What is known of every host call before its waiting is explained.

In: host and device tasks of one rank. Out: usual lengths, launch order, launches outstanding.
What is outstanding on streams is counted in `launch_queue.py`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numba import njit

from foretrace.graph.infer.tasks.device_tasks import MEMCPY
from foretrace.graph.model import WAITS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foretrace.graph.infer.events import Events
    from foretrace.graph.infer.tasks.device_tasks import DeviceTasks
    from foretrace.graph.infer.tasks.host_tasks import HostTasks
    from foretrace.graph.infer.tasks.launch_queue import LaunchQueue
    from foretrace.graph.state import Doubt

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
LAUNCH_PRIOR_NS, GRAPH_PRIOR_NS = 6_000, 20_000
"""What a launch, and that of a graph, costs at most where every recorded one waited."""
_GRAPH_LAUNCH = re.compile("GraphLaunch")
SHORT_SHARE = 0.1
"""Of calls that all waited, these waited least: no call costs more than they took."""

NONE, DEVICE, STREAM, EVENT, OWN = range(len(WAITS))


@dataclass
class Waits:
    """Per host task: unblocked cost, what it waits for, and why it was long.

    ``event_task`` names the device task an event synchronisation waited for (−1: none).
    ``holds_lock`` marks calls that stall other threads' calls while they wait.
    ``return_ns`` is the time from the end of the awaited work to the return, per wait;
    ``untraced_ns`` what a call waited for something that no recording shows. ``assumed`` names the
    launching APIs whose cost is a prior.
    """

    work_ns: Ints
    wait: NDArray[np.int8]
    wait_lane: Ints
    event_task: Ints
    holds_lock: Flags
    locked: Flags
    queued: Flags
    return_ns: Ints
    untraced_ns: Ints
    queue_depth: int | None = None
    counts: dict[str, int] = field(default_factory=dict)
    doubts: list[Doubt] = field(default_factory=list)
    assumed: tuple[str, ...] = ()

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
            untraced_ns=np.zeros(rows, np.int64),
        )


class LaneLaunches(NamedTuple):
    """The launches of one stream in host order: call starts, and the device task of each."""

    called_ns: Ints
    task: Ints


@dataclass(frozen=True)
class Calls:
    """Per host task: its API's usual length, and whether the call is suspiciously long.

    ``is_guess`` marks calls whose usual length is a prior, because every call like them was made
    while the queue was full.
    """

    usual_ns: Ints
    is_long: Flags
    is_guess: Flags
    on_lane: list[LaneLaunches]


def measure_calls(
    events: Events, host: HostTasks, devices: DeviceTasks, queue: LaunchQueue
) -> Calls:
    """Measure every call of one rank against its kind; what waited for the queue says nothing."""
    length = host.end_ns - host.start_ns
    usual = _find_usual(events.name[host.event], length, host.is_call & ~queue.is_near)
    is_guess = _fill_in(events, host, devices, usual, queue)
    lasting = np.flatnonzero(host.is_call & (length > LONG_NS))
    is_long = np.zeros(len(host), bool)
    is_long[lasting] = length[lasting] > LONG_FACTOR * usual[lasting]
    return Calls(usual, is_long, is_guess, order_launches(host, devices))


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


def _fill_in(
    events: Events, host: HostTasks, devices: DeviceTasks, usual: Ints, queue: LaunchQueue
) -> Flags:
    """Write the usual length of calls that were only made while the queue was full.

    It is that of launches of other APIs, which did not wait; else a prior. No call costs more than
    the shortest of its API took. Return which are a mere prior.
    """
    is_guess = np.zeros(len(host), bool)
    open_ = host.is_call & (usual < 0)
    if not open_.any():
        return is_guess
    launching = np.unique(devices.launch[(devices.launch >= 0) & (devices.kind != MEMCPY)])
    launching = launching[host.is_call[launching]]
    others = launching[~queue.is_near[launching]]
    api, length = events.name[host.event], host.end_ns - host.start_ns
    for name in np.unique(api[open_]):
        same = np.flatnonzero(open_ & (api == name))
        is_graph = bool(_GRAPH_LAUNCH.search(events.names[name]))
        like = others[events.named(_GRAPH_LAUNCH, host.event[others]) == is_graph]
        prior = GRAPH_PRIOR_NS if is_graph else LAUNCH_PRIOR_NS
        cost = int(np.median(length[like])) if len(like) else prior
        shortest = int(np.quantile(length[same], SHORT_SHARE))
        usual[same] = min(cost, shortest)
        is_guess[same] = not len(like) and shortest > prior
    return is_guess


@njit(cache=True)
def _find_usual(code: Ints, length: Ints, is_free: Flags) -> Ints:
    """Per task: the median length of the free calls of its name; −1 where there are none.

    Calls that look blocked do not count.
    """
    names = max(code.max(), 0) + 2
    first = np.zeros(names + 1, np.int64)
    for i in range(len(code)):
        if is_free[i]:
            first[code[i] + 2] += 1
    for name in range(names):
        first[name + 1] += first[name]
    lengths = np.empty(first[names], np.int64)
    place = first[:names].copy()
    for i in range(len(code)):
        if is_free[i]:
            lengths[place[code[i] + 1]] = length[i]
            place[code[i] + 1] += 1
    median = np.full(names, -1, np.int64)
    for name in range(names):
        same = np.sort(lengths[first[name] : first[name + 1]])
        if len(same):
            limit = max(LONG_NS, LONG_FACTOR * same[len(same) // 2])
            short = np.searchsorted(same, limit, side="right")
            median[name] = same[short // 2] if short else same[0]
    usual = np.empty(len(code), np.int64)
    for i in range(len(code)):
        usual[i] = median[code[i] + 1]
    return usual
