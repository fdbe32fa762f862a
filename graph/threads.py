"""How host threads depend on each other: who hands work to whom, and who waits.

In: host tasks of one rank and its step boundaries. Out: fork and join edges, and which gaps on a
thread are waiting and therefore no cost of that thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foretrace.graph.host import Host

    Ints = NDArray[np.int64]

SUBORDINATE_SHARE = 0.97      # of a thread's tasks that lie inside gaps of the main thread
FORK_GAP_NS = 100_000         # shorter pauses of the main thread are no handing over
SLACK_NS = 2_000
WAKE_GAP_NS = 100_000         # a helper thread's pause this long is waiting to be woken


@dataclass(frozen=True)
class HostEdges:
    """Edges between host tasks of different threads."""

    src: Ints
    dst: Ints
    lag_ns: Ints
    kind: NDArray[np.str_]
    rule: str

    @staticmethod
    def none(rule: str) -> HostEdges:
        """Return no edges."""
        empty = np.empty(0, np.int64)
        return HostEdges(empty, empty, empty, np.empty(0, "<U6"), rule)


@dataclass(frozen=True)
class Threads:
    """Roles of the host threads of one rank.

    ``group`` numbers, per host task, the threads that work together: 0 is the training loop.
    ``first`` marks tasks before which their thread waited instead of working.
    """

    main: int
    subordinates: tuple[int, ...]
    loaders: tuple[int, ...]
    others: tuple[int, ...]
    group: Ints
    waited: NDArray[np.bool_]
    edges: tuple[HostEdges, ...]


def thread_roles(
    host: Host, main: int, loaders: tuple[int, ...], launches: NDArray[np.bool_], *, fork_join: bool
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
    on_main = np.flatnonzero(host.thread == main)
    for thread in np.unique(host.thread).tolist():
        if thread == main:
            continue
        mine = np.flatnonzero(host.thread == thread)
        gap, inside = _inside_gaps(host, on_main, mine)
        follows = inside.mean() >= SUBORDINATE_SHARE and (
            launches[mine].any() or _fills(host, on_main, mine, gap)
        )
        if thread not in loaders and follows:
            subordinates.append(thread)
            if fork_join:
                edges.append(_fork_join(host, on_main, mine, gap, inside, waited))
            continue
        group[mine] = 1 + len(others) + len(loaders)
        if thread in loaders:
            group[mine] = 1 + loaders.index(thread)
            continue
        others.append(thread)
        if launches[mine].any():
            edges.append(_wake_ups(host, on_main, mine, waited))
    return Threads(main, tuple(subordinates), loaders, tuple(others), group, waited, tuple(edges))


def _inside_gaps(host: Host, on_main: Ints, mine: Ints) -> tuple[Ints, NDArray[np.bool_]]:
    """Per task of a thread: the main task before it, and whether it fits before the next one."""
    before = np.searchsorted(host.start_ns[on_main], host.start_ns[mine], side="right") - 1
    known = (before >= 0) & (before + 1 < len(on_main))
    slot = np.clip(before, 0, max(len(on_main) - 2, 0))
    if len(on_main) < 2:  # noqa: PLR2004
        return slot, np.zeros(len(mine), bool)
    left = host.end_ns[on_main[slot]] - SLACK_NS
    right = host.start_ns[on_main[slot + 1]] + SLACK_NS
    outside = before == len(on_main) - 1
    fits = (host.start_ns[mine] >= left) & (host.end_ns[mine] <= right)
    return slot, np.where(known, fits, outside | (before < 0))


def _fills(host: Host, on_main: Ints, mine: Ints, gap: Ints) -> bool:
    """Whether the thread works through most of the pauses it lies in: watchdogs only look in."""
    used = np.unique(gap[gap + 1 < len(on_main)])
    pause = host.start_ns[on_main[used + 1]] - host.end_ns[on_main[used]]
    work = host.end_ns[mine] - host.start_ns[mine]
    return bool(2 * work.sum() > pause.sum())


def _fork_join(
    host: Host,
    on_main: Ints,
    mine: Ints,
    gap: Ints,
    inside: NDArray[np.bool_],
    waited: NDArray[np.bool_],
) -> HostEdges:
    """One fork and one join per pause of the main thread that holds work of the other thread."""
    length = host.start_ns[on_main[gap + 1]] - host.end_ns[on_main[gap]]
    use = inside & (length > FORK_GAP_NS)
    gap, mine_used = gap[use], mine[use]
    if not len(gap):
        return HostEdges.none("fork/join")
    _, first = np.unique(gap, return_index=True)
    last = np.append(first[1:], len(gap)) - 1
    head, tail = mine_used[first], mine_used[last]
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


def _wake_ups(host: Host, on_main: Ints, mine: Ints, waited: NDArray[np.bool_]) -> HostEdges:
    """A helper thread that pauses is woken by what the main thread did just before."""
    pause = np.append([WAKE_GAP_NS + 1], host.start_ns[mine[1:]] - host.end_ns[mine[:-1]])
    woken = mine[pause > WAKE_GAP_NS]
    before = np.searchsorted(host.end_ns[on_main], host.start_ns[woken], side="right") - 1
    known = before >= 0
    woken, waker = woken[known], on_main[before[known]]
    waited[woken] = True
    lag = np.clip(host.start_ns[woken] - host.end_ns[waker], 0, None)
    return HostEdges(waker, woken, lag, np.repeat("fork", len(woken)), "wake-up")
