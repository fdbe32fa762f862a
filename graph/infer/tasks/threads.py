"""How host threads depend on each other: who hands work to whom, and who waits.

In: host tasks of one rank and its step boundaries. Out: fork and join edges, and which gaps on a
thread are waiting and therefore no cost of that thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foretrace.graph.infer.tasks.host_tasks import HostTasks

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]

SUBORDINATE_SHARE = 0.97
"""Of a subordinate's tasks that lie inside pauses of the main thread."""
FORK_GAP_NS = 100_000
"""Shorter pauses of the main thread are no handing over ..."""
FILLED = 0.5
"""... unless work of the other thread takes this share of them."""
WAKE_GAP_NS = 100_000
"""A helper thread's pause this long is waiting to be woken."""
SLACK_NS = 2_000
"""Timestamps of two threads agree no better."""


@dataclass(frozen=True)
class HostEdges:
    """Edges between host tasks of different threads."""

    src: Ints
    dst: Ints
    lag_ns: Ints
    kind: NDArray[np.str_]
    rule: str


@dataclass(frozen=True)
class Threads:
    """Roles of the host threads of one rank.

    ``group`` numbers, per host task, the threads that work together: 0 is the training loop.
    ``waited`` marks tasks before which their thread waited instead of working.
    """

    main: int
    subordinates: tuple[int, ...]
    loaders: tuple[int, ...]
    others: tuple[int, ...]
    group: Ints
    waited: Flags
    edges: tuple[HostEdges, ...]


def infer_thread_roles(
    host: HostTasks, main: int, loaders: tuple[int, ...], launches: Flags, *, fork_join: bool
) -> Threads:
    """Give each thread its role and couple the threads that follow the main one.

    Parameters
    ----------
    main
        Thread that runs the training loop.
    loaders
        Threads with loader ranges; they are coupled elsewhere.
    launches
        Per host task: does it put work on a device.
    """
    group = np.zeros(len(host), np.int64)
    waited = np.zeros(len(host), bool)
    edges: list[HostEdges] = []
    subordinates: list[int] = []
    others: list[int] = []
    on_main = host.tasks_of(main)
    for thread in host.spans:
        mine = host.tasks_of(thread)
        if thread == main:
            continue
        if thread in loaders:
            group[mine] = 1 + loaders.index(thread)
            continue
        gap, inside = _find_gaps(host, on_main, mine)
        has_launches = bool(launches[mine].any())
        works_in_turn = has_launches or _fills_gaps(host, on_main, mine, gap)
        if inside.mean() >= SUBORDINATE_SHARE and works_in_turn:
            subordinates.append(thread)
            if fork_join:
                edges.append(_couple_by_fork_join(host, on_main, mine[inside], gap[inside], waited))
            continue
        group[mine] = 1 + len(others) + len(loaders)
        others.append(thread)
        if has_launches:
            edges.append(_couple_by_wake_up(host, on_main, mine, waited))
    return Threads(main, tuple(subordinates), loaders, tuple(others), group, waited, tuple(edges))


def _find_gaps(host: HostTasks, on_main: Ints, mine: Ints) -> tuple[Ints, Flags]:
    """Per task of a thread: the main task before it, and whether it fits before the next one."""
    last = len(on_main) - 1
    if last < 1:
        return np.zeros(len(mine), np.int64), np.zeros(len(mine), bool)
    before = _find_last_begun(host.start_ns[on_main], host.start_ns[mine])
    between = (before >= 0) & (before < last)
    slot = np.clip(before, 0, last - 1)
    left = host.end_ns[on_main[slot]] - SLACK_NS
    right = host.start_ns[on_main[slot + 1]] + SLACK_NS
    fits = (host.start_ns[mine] >= left) & (host.end_ns[mine] <= right)
    return slot, fits | ~between


@njit(cache=True)
def _find_last_begun(starts: Ints, moments: Ints) -> Ints:
    """Index of the last of *starts* not after each of *moments*, both in order; −1: none."""
    last = np.empty(len(moments), np.int64)
    at = 0
    for i in range(len(moments)):
        while at < len(starts) and starts[at] <= moments[i]:
            at += 1
        last[i] = at - 1
    return last


def _fills_gaps(host: HostTasks, on_main: Ints, mine: Ints, gap: Ints) -> bool:
    """Tell whether the thread works through most of the pauses it lies in.

    A watchdog only looks in.
    """
    used = np.unique(gap[gap + 1 < len(on_main)])
    pause = host.start_ns[on_main[used + 1]] - host.end_ns[on_main[used]]
    work = host.end_ns[mine] - host.start_ns[mine]
    return bool(2 * work.sum() > pause.sum())


def _couple_by_fork_join(
    host: HostTasks, on_main: Ints, mine: Ints, gap: Ints, waited: Flags
) -> HostEdges:
    """One fork and one join per pause of the main thread that holds work of the other thread."""
    length = host.start_ns[on_main[gap + 1]] - host.end_ns[on_main[gap]]
    within = host.start_ns[mine] <= host.start_ns[on_main[gap + 1]]
    within &= host.end_ns[mine] >= host.end_ns[on_main[gap]]
    work = np.bincount(gap, weights=(host.end_ns[mine] - host.start_ns[mine]) * within)[gap]
    handed = (length > FORK_GAP_NS) | (within & (FILLED * length <= work))
    gap, mine = gap[handed], mine[handed]
    first = np.flatnonzero(np.diff(gap, prepend=-1))
    last = np.append(first[1:], len(gap))[: len(first)] - 1
    head, tail = mine[first], mine[last]
    before, after = on_main[gap[first]], on_main[gap[first] + 1]
    waited[head] = True
    waited[after] = True
    fork = np.clip(host.start_ns[head] - host.end_ns[before], 0, None)
    join = np.clip(host.start_ns[after] - host.end_ns[tail], 0, None)
    return HostEdges(
        np.concatenate([before, tail]),
        np.concatenate([head, after]),
        np.concatenate([fork, join]),
        np.repeat(["fork", "join"], [len(head), len(tail)]),
        "fork/join",
    )


def _couple_by_wake_up(host: HostTasks, on_main: Ints, mine: Ints, waited: Flags) -> HostEdges:
    """Return what woke a helper thread after each pause: what the main thread did just before."""
    pause = np.append([WAKE_GAP_NS + 1], host.start_ns[mine[1:]] - host.end_ns[mine[:-1]])
    woken = mine[pause > WAKE_GAP_NS]
    before = np.searchsorted(host.end_ns[on_main], host.start_ns[woken], side="right") - 1
    has_waker = before >= 0
    woken, waker = woken[has_waker], on_main[before[has_waker]]
    waited[woken] = True
    lag = np.clip(host.start_ns[woken] - host.end_ns[waker], 0, None)
    return HostEdges(waker, woken, lag, np.repeat("fork", len(woken)), "wake-up")
