"""How fast groups of tasks run while they share links or slow each other, compiled.

In and out: the records of `loop_state`, which say who ends next, and when. Compiled
into `event_loop`, which must be told of changes (see ``PARTS`` there).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numba import njit

from foretrace.replaying.engine.loop_state import NEVER
from foretrace.replaying.engine.max_min_fair import fill

if TYPE_CHECKING:
    from foretrace.replaying.engine.loop_state import Records
    from foretrace.replaying.engine.program import Floats, Ints, Longs


@njit(cache=True)
def enter(
    groups: Records,
    neighbours: Ints,
    tally: Any,
    goal: Floats,
    lost: Longs,
    behind: Ints,
    at: int,
    task: int,
    start: int,
    work: int,
) -> bool:
    """Let *task* run with the group *at* from now on; tell whether it does.

    What a negative lag let start in the past has run at full speed since; it may be done.
    """
    group = groups[at]
    left = work - (tally.now - start)
    if left <= 0:
        return False
    _advance(group, tally.now)
    if group.running == 0:
        group.work, group.lost = 0.0, 0.0
    goal[task], lost[task] = group.work + left, round(group.lost)
    behind[task], group.head = group.head, task
    group.running += 1
    if group.running == 1:
        _tell(groups, neighbours, tally, at)
    _mark(groups, tally, at)
    group.refill = True
    return True


@njit(cache=True)
def leave(
    groups: Records,
    neighbours: Ints,
    tally: Any,
    goal: Floats,
    lost: Longs,
    behind: Ints,
    earliest: Ints,
) -> int:
    """End the task that is done first, at the ``end`` of its group; return it."""
    at = earliest[1]
    group = groups[at]
    tally.now = max(tally.now, group.end)
    _advance(group, group.end)
    task = _next(goal, behind, group.head)
    lost[task] = round(group.lost) - lost[task]
    _unlink(group, behind, task)
    group.running -= 1
    if group.running == 0:
        _tell(groups, neighbours, tally, at)
    _mark(groups, tally, at)
    group.refill = True
    _schedule(groups, goal, behind, earliest, at)
    return task


@njit(cache=True)
def settle(
    groups: Records,
    links: Records,
    routes: Records,
    users: Ints,
    tally: Any,
    goal: Floats,
    behind: Ints,
    earliest: Ints,
) -> None:
    """Work out the rates that hold from now on, and when the next task of each group is done."""
    nth = 0
    while nth < tally.marked:
        if groups[groups[nth].marked].refill:
            _refill(groups, links, routes, users, tally, groups[nth].marked)
        nth += 1
    for nth in range(tally.marked):
        at = groups[nth].marked
        group = groups[at]
        _advance(group, tally.now)
        group.rate = group.fill_rate * (group.share if group.busy > 0 else 1.0)
        group.is_marked = group.refill = False
        _schedule(groups, goal, behind, earliest, at)
    for nth in range(tally.met):
        links[links[nth].met].is_met = False
    tally.marked = tally.met = 0


@njit(cache=True)
def _advance(group: Any, now: int) -> None:
    """Add up what *group* did and lost until *now*."""
    passed = now - group.since
    group.work += group.rate * passed
    group.lost += (1.0 - group.fill_rate) * passed
    group.since = now


@njit(cache=True)
def _next(goal: Floats, behind: Ints, task: int) -> int:
    """Return which of the tasks from *task* on is done first, the lowest of several."""
    best = task
    while task >= 0:
        if goal[task] < goal[best] or (goal[task] == goal[best] and task < best):
            best = task
        task = behind[task]
    return best


@njit(cache=True)
def _unlink(group: Any, behind: Ints, task: int) -> None:
    """Take *task* out of the list of *group*."""
    if group.head == task:
        group.head = behind[task]
        return
    before = group.head
    while behind[before] != task:
        before = behind[before]
    behind[before] = behind[task]


@njit(cache=True)
def _tell(groups: Records, neighbours: Ints, tally: Any, at: int) -> None:
    """Tell the neighbours of the group *at* that it began to run, or no longer does."""
    change = 1 if groups[at].running > 0 else -1
    for p in range(groups[at].first_neighbour, groups[at].end_neighbour):
        other = neighbours[p]
        groups[other].busy += change
        if groups[other].busy == max(change, 0) and groups[other].running > 0:
            _mark(groups, tally, other)


@njit(cache=True)
def _mark(groups: Records, tally: Any, at: int) -> None:
    """Note that the rate of the group *at* has to be worked out anew."""
    if not groups[at].is_marked:
        groups[at].is_marked = True
        groups[tally.marked].marked = at
        tally.marked += 1


@njit(cache=True)
def _schedule(groups: Records, goal: Floats, behind: Ints, earliest: Ints, at: int) -> None:
    """Set when the next task of a group is done, to the nearest ns, and who is first of all."""
    group = groups[at]
    group.end = NEVER
    if group.running > 0:
        left = goal[_next(goal, behind, group.head)] - group.work
        group.end = group.since + round(max(left, 0.0) / group.rate)
    node = (len(groups) + at) // 2
    while node > 0:
        one, other = earliest[2 * node], earliest[2 * node + 1]
        earliest[node] = one if groups[one].end <= groups[other].end else other
        node //= 2


@njit(cache=True)
def _refill(
    groups: Records, links: Records, routes: Records, users: Ints, tally: Any, at: int
) -> None:
    """Share the links of the group *at* anew, with all that running tasks tie to them.

    Links that were met before, at the same time, are done.
    """
    begin = nth = tally.met
    tally.tied = 0
    _meet(groups, links, routes, tally, at)
    while nth < tally.met:
        link = links[links[nth].met]
        for p in range(link.first_user, link.end_user):
            user = users[p]
            if groups[user].running > 0 and not groups[user].is_tied:
                groups[user].is_tied = True
                groups[tally.tied].tied = user
                tally.tied += 1
                _meet(groups, links, routes, tally, user)
        nth += 1
    fill(groups, links, routes, tally, begin)
    for nth in range(tally.tied):
        one = groups[groups[nth].tied]
        one.is_tied = False
        if one.limit != one.fill_rate:
            _advance(one, tally.now)
            one.fill_rate = one.limit
            _mark(groups, tally, groups[nth].tied)


@njit(cache=True)
def _meet(groups: Records, links: Records, routes: Records, tally: Any, at: int) -> None:
    """Add the links of the group *at* to those met."""
    for p in range(groups[at].first_route, groups[at].end_route):
        link = routes[p].link
        if not links[link].is_met:
            links[link].is_met = True
            links[tally.met].met = link
            tally.met += 1
