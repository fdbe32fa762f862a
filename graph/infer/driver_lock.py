"""Calls that could not proceed while another thread's call held the driver's lock.

In: host tasks of one rank whose own waiting is explained. Out: entries of `Waits`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from foretrace.graph.infer.api_calls import NONE
from foretrace.graph.infer.host_tasks import SYNC_CALLS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from foretrace.graph.infer.api_calls import Calls, Waits
    from foretrace.graph.infer.events import Events
    from foretrace.graph.infer.host_tasks import Host

    Ints = NDArray[np.int64]

BEFORE_NS, AFTER_NS = 20_000, 100_000
"""A stalled call ends so little before, or so little after, the call that held the lock."""


def driver_lock(events: Events, host: Host, calls: Calls, waits: Waits) -> None:
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
    stalled, holder = _began_during(host, suspects, np.flatnonzero(waits.holds_lock & long_call))
    waits.locked[stalled] = True
    beyond = np.clip(host.end_ns[stalled] - host.end_ns[holder] - AFTER_NS, 0, None)
    waits.work_ns[stalled] = usual[stalled] + beyond
    left = suspects[~waits.locked[suspects]]
    for call, near in _ended_together(host, left, np.flatnonzero(long_call & ~is_sync)):
        holders = near[~waits.locked[near]]
        if len(holders):
            waits.locked[call] = True
            waits.work_ns[call] = usual[call]
            waits.holds_lock[holders] = True
    waits.counts["calls blocked by the driver lock"] = int(waits.locked.sum())


def _began_during(host: Host, calls: Ints, holders: Ints) -> tuple[Ints, Ints]:
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


def _ended_together(host: Host, calls: Ints, holders: Ints) -> Iterator[tuple[int, Ints]]:
    """Pair each call with the other threads' holders that began no later and end with it."""
    holders = holders[np.argsort(host.end_ns[holders], kind="stable")]
    ends = host.end_ns[holders]
    for call in calls.tolist():
        end = host.end_ns[call]
        first, last = np.searchsorted(ends, [end - AFTER_NS, end + BEFORE_NS + 1])
        near = holders[first:last]
        other = host.thread[near] != host.thread[call]
        yield call, near[other & (host.start_ns[near] <= host.start_ns[call])]
