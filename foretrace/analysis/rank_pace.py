"""Which rank of several sets the pace, and how long the others wait for it.

In: the replay of a graph of several ranks. Out: one `RankPace` each; nothing of a single rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foretrace.replaying.critical_path import sum_time_by, trace_critical_path, trace_limiting_cycle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from foretrace.replaying.timeline import Timeline

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

SEVERAL = 2


@dataclass(frozen=True)
class RankPace:
    """One rank among its peers. Times in ns of a step, as replayed.

    ``begins_ns`` is how long after the first rank its own step begins. It waits ``waits_ns`` in
    collectives for later ranks; at ``last_at`` of ``meets`` collectives of a window it arrives
    last itself, and each of the others waits ``awaited_ns`` there. ``path_ns`` is what its own
    lanes take of the chain that sets the pace.
    """

    rank: int
    begins_ns: float
    waits_ns: float
    meets: int
    last_at: int
    awaited_ns: float
    path_ns: float


def rank_paces(timeline: Timeline) -> tuple[RankPace, ...]:
    """Return every rank of *timeline*, in order of their numbers; none where there is only one."""
    graph = timeline.graph
    is_link = (graph.lanes["kind"] == "link").to_numpy()
    ranks = np.unique(graph.lanes["rank"].to_numpy()[~is_link])
    if len(ranks) < SEVERAL:
        return ()
    lane = np.searchsorted(ranks, graph.lanes["rank"].to_numpy())
    rank = np.where(is_link, len(ranks), lane)[graph.tasks["lane"].to_numpy()]
    path = _bottleneck(timeline, rank, len(ranks))
    begins = _begins(timeline, rank, len(ranks))
    waits, meets, last_at, awaited = _meetings(timeline, rank, len(ranks))
    if graph.steps > 1 and not meets.any():
        begins = np.zeros_like(begins)  # they drift apart: how far says nothing
    steps = graph.steps
    return tuple(
        RankPace(
            rank=int(ranks[at]),
            begins_ns=float(begins[at]),
            waits_ns=float(waits[at]) / steps,
            meets=int(meets[at]),
            last_at=int(last_at[at]),
            awaited_ns=float(awaited[at]) / steps,
            path_ns=float(path[at]),
        )
        for at in range(len(ranks))
    )


def pace_setter(ranks: Sequence[RankPace]) -> str | None:
    """Say in a sentence which rank sets the pace and why; ``None`` where there is one rank.

    Examples
    --------
    >>> pace_setter(
    ...     [RankPace(0, 0.0, 9e6, 4, 0, 0.0, 1e6), RankPace(1, 7e6, 0.0, 4, 3, 8.9e6, 19e6)]
    ... )
    'rank 1 sets the pace: it begins 7.0 ms after rank 0 and is the last at 3 of 4 collectives, \
where each other rank waits 8.9 ms a step; 95% of the chain that sets it is its own'
    """
    if not ranks:
        return None
    slow = max(ranks, key=lambda each: each.path_ns)
    first = min(ranks, key=lambda each: each.begins_ns)
    why = []
    if slow.begins_ns > 0:
        why.append(f"begins {slow.begins_ns / 1e6:.1f} ms after rank {first.rank}")
    if slow.last_at:
        why.append(
            f"is the last at {slow.last_at} of {slow.meets} collectives, where each other rank "
            f"waits {slow.awaited_ns / 1e6:.1f} ms a step"
        )
    share = slow.path_ns / sum(each.path_ns for each in ranks)
    reason = f"it {' and '.join(why)}; " if why else ""
    return (
        f"rank {slow.rank} sets the pace: {reason}{share:.0%} of the chain that sets it is its own"
    )


def _bottleneck(timeline: Timeline, rank: Ints, ranks: int) -> Floats:
    """Return the time of a step by the rank whose task works or waits on the limiting cycle."""
    cycle = trace_limiting_cycle(timeline.steady)
    chain = cycle if len(cycle.task) else trace_critical_path(timeline.steady)
    spent = sum_time_by(chain, rank, ranks + 1).sum(axis=1)
    shares: Floats = spent[:ranks] / max(spent[:ranks].sum(), 1)
    return shares * timeline.step_ns


def _begins(timeline: Timeline, rank: Ints, ranks: int) -> Ints:
    """Return when the first task of each rank's main thread starts, after the earliest of them."""
    graph = timeline.graph
    lane = graph.tasks["lane"].to_numpy()
    main = (graph.lanes["role"] == "main").to_numpy()[lane]
    rows = np.flatnonzero(main if main.any() else rank < ranks)
    first = np.full(ranks, np.iinfo(np.int64).max)
    np.minimum.at(first, rank[rows], timeline.start_ns[rows])
    begins = first < np.iinfo(np.int64).max
    return np.where(begins, first - first.min(), 0)


def _meetings(timeline: Timeline, rank: Ints, ranks: int) -> tuple[Floats, Ints, Ints, Floats]:
    """Return per rank: time waited, collectives attended, at how many it was last, and awaited."""
    edges = timeline.graph.edges
    member, meeting = (
        edges[end].to_numpy()[(edges["kind"] == "collective").to_numpy()] for end in ("src", "dst")
    )
    arrives, who = timeline.start_ns[member], rank[member]
    _, meeting = np.unique(meeting, return_inverse=True)
    order = np.lexsort((-who, arrives, meeting))
    is_last = np.append(np.diff(meeting[order]) > 0, [True])[: len(order)]
    last = order[is_last]
    late = arrives[last][meeting] - arrives
    others = np.maximum(np.bincount(meeting) - 1, 1)
    awaited = np.bincount(meeting, late) / others
    return (
        np.bincount(who, late, ranks).astype(np.float64),
        np.bincount(who, minlength=ranks).astype(np.int64),
        np.bincount(who[last], minlength=ranks).astype(np.int64),
        np.bincount(who[last], awaited, ranks).astype(np.float64),
    )
