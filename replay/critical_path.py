"""Which chain of causes makes a step as long as it is.

The steady schedule is walked back from one start of the pace-setting lane to the start a pattern
earlier. Every moment has one binding cause, so the parts add up to the period, exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numba import njit

from foretrace.graph.model import EDGE_KINDS

if TYPE_CHECKING:
    from foretrace.replaying.engine.program import Bytes, Ints, Longs
    from foretrace.replaying.engine.schedule import Schedule
    from foretrace.replaying.steady_state import Steady

WORK = len(EDGE_KINDS)
"""Reason of a segment in which its task works; edge kinds are the reasons below."""
RESOURCE = WORK + 1
"""Reason of an empty segment: its task then waited for a resource that was held until here."""
RELEASE = WORK + 2
"""Reason of a segment before which nothing is known: the task was only released."""
SHARED_LINK = WORK + 3
"""Reason of a segment by which a transfer is longer because other transfers take the same links."""
CONTENTION = WORK + 4
"""Reason of a segment by which computation and transfers that overlap slow each other."""
_USUAL = 1 << 20  # segments; memory that is not written costs nothing
REASONS = (*EDGE_KINDS, "work", "resource", "release", "shared link", "contention")


@dataclass(frozen=True)
class CausalChain:
    """Segments of a walk back through the causes, latest first, without a gap between them."""

    task: Longs  # as numbered in `program`
    from_ns: Longs
    to_ns: Longs
    why: Longs  # position in REASONS


class _Causes(NamedTuple):
    """What the walk back reads."""

    moments: Longs
    holder: Ints
    stretch: Longs  # as in the schedule; no entries where nothing is shared
    work: Longs
    kind: Bytes
    first: Ints  # edges into each moment
    step: Longs
    lag: Longs
    edge: Ints
    by_links: Longs


def trace_critical_path(steady: Steady) -> CausalChain:
    """Return the chain that fills the last pattern: ``cycle`` periods, to the nanosecond."""
    return _trace_back(steady.schedule, *_find_last_pattern(steady))


def _find_last_pattern(steady: Steady) -> tuple[int, int]:
    """Return the moment at which the last pattern ends, and the time at which it begins."""
    last = (steady.program.repetitions - 1) * 2 * steady.program.tasks + steady.pace
    before = last - steady.cycle * 2 * steady.program.tasks
    return last, int(steady.schedule.moments[before])


def sum_time_by(chain: CausalChain, group: Longs, groups: int) -> Longs:
    """Return the ns of *chain* by the group of its task and its reason: a 2-d array.

    *group* has a number below *groups* for every row of the window, of any integer type.
    """
    place = group.astype(np.int64)[chain.task % len(group)] * len(REASONS) + chain.why
    spent = np.bincount(place, chain.to_ns - chain.from_ns, groups * len(REASONS))
    return spent.astype(np.int64).reshape(groups, len(REASONS))


def trace_limiting_cycle(steady: Steady) -> CausalChain:
    """Return the chain of causes that closes on itself some repetitions earlier.

    No step can be shorter than this chain is long per repetition: it is the bottleneck. Empty
    when the walk back to the beginning meets no moment twice; not as long as the period where
    waiting for resources or a fill that has not ended makes up the rest.
    """
    last, _ = _find_last_pattern(steady)
    late, early = _find_closing(last, steady.period_ns, _read_causes(steady.schedule))
    return _trace_back(steady.schedule, late, int(steady.schedule.moments[early]))


def _trace_back(schedule: Schedule, moment: int, until_ns: int) -> CausalChain:
    causes = _read_causes(schedule)
    segments = np.empty((_USUAL, 4), np.int64)
    size = _walk(segments, moment, until_ns, causes)
    if size > len(segments):
        segments = np.empty((size, 4), np.int64)
        _walk(segments, moment, until_ns, causes)
    segments = segments[:size]
    task, from_ns, to_ns, why = segments.T
    return CausalChain(task, from_ns, to_ns, why)


def _read_causes(schedule: Schedule) -> _Causes:
    program, into = schedule.prepared.program, schedule.prepared.into
    return _Causes(
        schedule.moments,
        schedule.holder,
        schedule.stretch_ns,
        program.work_ns,
        program.kind,
        into.first,
        into.step,
        into.lag_ns,
        into.edge,
        schedule.link_ns,
    )


@njit(cache=True)
def _sum_taken(stretch: Longs, work: Longs, task: int) -> int:
    """Return how long the own work of *task* took."""
    return int(work[task % len(work)] + (stretch[task] if len(stretch) else 0))


@njit(cache=True)
def _step_back(
    base: int,
    v: int,
    moments: Longs,
    holder: Ints,
    stretch: Longs,
    work: Longs,
    kind: Bytes,
    first: Ints,
    step: Longs,
    lag: Longs,
    edge: Ints,
) -> tuple[int, int]:
    """Return what determined moment *v* of the repetition from *base* on, and why.

    Own work comes before edges that bind as well; of these the first counts. Where nothing did,
    it is the moment itself.
    """
    count, moment = len(work), base + v
    now = moments[moment]
    if v >= count and now == moments[moment - count] + _sum_taken(
        stretch, work, base // 2 + v - count
    ):
        return moment - count, WORK
    if v < count and holder[base // 2 + v] >= 0:
        held_by = holder[base // 2 + v]
        return held_by // count * 2 * count + count + held_by % count, RESOURCE
    for p in range(first[v], first[v + 1]):
        source = base + step[p]
        if source >= 0 and moments[source] + lag[p] == now:
            return source, int(kind[edge[p]])
    return moment, RELEASE


@njit(cache=True)
def _find_begin(moment: int, near: int, block: int) -> int:
    """Return where the repetition of *moment* begins; *near* is where one close by does."""
    while moment < near:
        near -= block
    while moment >= near + block:
        near += block
    return near


@njit(cache=True)
def _walk(segments: Longs, moment: int, until: int, causes: _Causes) -> int:
    """Write the segments from *moment* back to the time *until*; return how many there are.

    A return may lag behind the end it follows by less than nothing: then the walk goes forward
    in time first, and only what lies before the earliest time so far is a part.
    """
    size = 0
    moments, holder, stretch, work, kind, first, step, lag, edge, _ = causes
    block = 2 * len(work)
    reached, base = moments[moment], moment - moment % block
    while reached > until:
        v = moment - base
        before, why = _step_back(
            base, v, moments, holder, stretch, work, kind, first, step, lag, edge
        )
        if why == WORK and len(stretch):
            size, reached = _write_stretch(segments, size, before, reached, until, causes)
        begin = until if why == RELEASE else max(until, min(reached, moments[before]))
        if begin < reached or why == RESOURCE:
            if size < len(segments):
                row = v if v < len(work) else v - len(work)
                segments[size] = (base // 2 + row, begin, reached, why)
            size += 1
        reached = begin
        moment, base = before, _find_begin(before, base, block)
    return size


@njit(cache=True)
def _write_stretch(
    segments: Longs, size: int, start: int, reached: int, until: int, causes: _Causes
) -> tuple[int, int]:
    """Write what sharing added to the task that began at *start*, as its last part.

    Return how many segments there are, and where the last one begins.
    """
    moments, _, stretch, work = causes[:4]
    by_links = causes[-1]
    row = start % (2 * len(work))
    task = (start - row) // 2 + row
    end = moments[start] + work[row] + stretch[task]
    for why, added in (
        (CONTENTION, stretch[task] - by_links[task]),
        (SHARED_LINK, by_links[task]),
    ):
        end -= added
        begin = max(until, min(reached, end))
        if begin < reached:
            if size < len(segments):
                segments[size] = (task, begin, reached, why)
            size += 1
            reached = begin
    return size, reached


@njit(cache=True)
def _find_closing(moment: int, period: float, causes: _Causes) -> tuple[int, int]:
    """Walk back until a row's moment is met again a full *period* per repetition earlier.

    Return the later and the earlier occurrence; the slowest that was met where none is as slow.
    """
    moments, holder, stretch, work, kind, first, step, lag, edge, _ = causes
    block = 2 * len(work)
    last_visit = np.full(block, -1, np.int64)
    slowest = 0.0
    late, early = moment, moment
    while True:
        place = moment % block
        if last_visit[place] >= 0:
            repetitions = (last_visit[place] - moment) // block
            pace = (moments[last_visit[place]] - moments[moment]) / repetitions
            if pace > slowest:
                late, early, slowest = last_visit[place], moment, pace
            if pace >= period:
                return late, early
        last_visit[place] = moment
        base = moment - place
        before, why = _step_back(
            base, place, moments, holder, stretch, work, kind, first, step, lag, edge
        )
        if why == RELEASE:
            return late, early
        moment = before
