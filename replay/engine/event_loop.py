"""The event-driven engine, compiled: known moments are expanded, the rest waits its turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from numba import njit

from foretrace.replaying.engine.fluid_rates import enter, leave, settle
from foretrace.replaying.engine.loop_state import NEVER

if TYPE_CHECKING:
    from foretrace.replaying.engine.loop_state import Flows, Load, State
    from foretrace.replaying.engine.program import Ints, Longs

PARTS = "6d59f4deb57804f1"
"""Beginning of the SHA-256 of fluid_rates.py and max_min_fair.py: both are part of `run_loop`.

Numba keeps what it compiled until *this* file changes, whatever becomes of those.

What it kept names `loop_state`: where that is renamed, `run_loop` must move by a line, or be
renamed, so that nobody's cache is read with the old name.
"""


@njit(cache=True)
def run_loop(  # noqa: C901, PLR0912, PLR0915  # one hot loop
    load: Load, state: State, flows: Flows | None
) -> int:
    """Run until nothing moves any more; return how many moments got their time.

    A moment whose time is fixed goes on the stack and is expanded, however far ahead it lies.
    Only requests and releases of resources, and starts and ends of what shares, wait for their
    time: at one time ends first, then releases (negative codes), then requests by index. Where
    nothing is shared (no *flows*), what belongs to it is not even compiled.
    """
    work, resource, holds, first, step, lag = load
    moments, missing, holder, order, stack, times, codes = state[:7]
    occupant, last, free_at, head, tail, behind = state[7:]
    if flows is not None:  # taken apart once: references are counted at every access
        group, groups, links, routes, neighbours, users, earliest = flows[:7]
        tally, goal, lost, stretch = flows[7][0], flows[8], flows[9], flows[10]
    count, depth, placed, size = len(work), 0, 0, 0
    block = 2 * count
    for i in range(len(holder) - 1, -1, -1):  # the stack gives low indices first
        v = i // count * block + i % count
        if missing[v] == 0 and resource[i % count] < 0:
            stack[depth] = v
            depth += 1
        elif missing[v] == 0:
            size = _push(times, codes, size, moments[v], i)
    while True:
        while depth > 0:
            depth -= 1
            v = stack[depth]
            order[placed] = v
            placed += 1
            w = v % block
            base, row = v - w, w % count
            own = 1 if w < count else 0  # besides its edges, a start leads to its own end
            if flows is not None:
                own = 0 if group[row] >= 0 else own
            for p in range(first[w], first[w + 1] + own):
                if p < first[w + 1]:
                    u, soonest = base + step[p], moments[v] + lag[p]
                else:
                    u, soonest = v + count, moments[v] + work[row]
                if u >= len(moments):
                    continue
                moments[u] = max(moments[u], soonest)
                missing[u] -= 1
                at = u % block
                if missing[u] == 0 and at < count and resource[at] >= 0:
                    size = _push(times, codes, size, moments[u], u // block * count + at)
                elif missing[u] == 0:
                    stack[depth] = u
                    depth += 1
            if w >= count and resource[row] >= 0 and holds[row]:
                size = _push(times, codes, size, moments[v], -1 - resource[row])
        if flows is not None:
            coming, due = times[0] if size > 0 else NEVER, groups[earliest[1]].end
            if tally.marked > 0 and min(due, coming) > tally.now:
                settle(groups, links, routes, users, tally, goal, behind, earliest)
                continue
            if due <= coming and due < NEVER:
                i = leave(groups, neighbours, tally, goal, lost, behind, earliest)
                v = i // count * block + i % count
                stretch[i] = due - moments[v] - work[i % count]
                depth = _end_work(moments, missing, stack, depth, v + count, due)
                continue
            if size > 0:
                tally.now = max(tally.now, coming)
        if size == 0:
            return placed
        now, code = times[0], codes[0]
        size = _pop(times, codes, size)
        r = resource[code % count] if code >= 0 else -1 - code
        if code >= 0:
            _join(head, tail, behind, r, code)
        else:
            free_at[r], last[r], occupant[r] = now, occupant[r], -1
        while head[r] >= 0 and occupant[r] < 0:
            i = head[r]
            head[r] = behind[i]
            v = i // count * block + i % count
            if moments[v] < free_at[r]:
                moments[v], holder[i] = free_at[r], last[r]
            if holds[i % count]:
                occupant[r] = i
            if flows is not None and group[i % count] >= 0:
                runs = enter(
                    groups,
                    neighbours,
                    tally,
                    goal,
                    lost,
                    behind,
                    group[i % count],
                    i,
                    moments[v],
                    work[i % count],
                )
                if not runs:
                    done = moments[v] + work[i % count]
                    depth = _end_work(moments, missing, stack, depth, v + count, done)
            stack[depth] = v  # above its end, which may be known already: starts come first
            depth += 1


@njit(cache=True)
def _end_work(moments: Longs, missing: Ints, stack: Ints, depth: int, end: int, now: int) -> int:
    """Let the moment *end* know that its task's own work is done *now*; return the new depth."""
    moments[end] = max(moments[end], now)
    missing[end] -= 1
    if missing[end] > 0:
        return depth
    stack[depth] = end
    return depth + 1


@njit(cache=True)
def _join(head: Ints, tail: Ints, behind: Ints, resource: int, task: int) -> None:
    """Put *task* at the end of the queue of *resource*."""
    if head[resource] < 0:
        head[resource] = task
    else:
        behind[tail[resource]] = task
    tail[resource] = task


@njit(cache=True)
def _push(times: Longs, codes: Longs, size: int, time: int, code: int) -> int:
    """Add an event to the binary heap; return its new size."""
    place = size
    while place > 0:
        above = (place - 1) // 2
        if times[above] < time or (times[above] == time and codes[above] < code):
            break
        times[place], codes[place] = times[above], codes[above]
        place = above
    times[place], codes[place] = time, code
    return size + 1


@njit(cache=True)
def _pop(times: Longs, codes: Longs, size: int) -> int:
    """Take the first event off the binary heap; return its new size."""
    size -= 1
    time, code = times[size], codes[size]
    place = 0
    while 2 * place + 1 < size:
        below = 2 * place + 1
        right = min(below + 1, size - 1)
        if times[right] < times[below] or (
            times[right] == times[below] and codes[right] < codes[below]
        ):
            below = right
        if times[below] > time or (times[below] == time and codes[below] > code):
            break
        times[place], codes[place] = times[below], codes[below]
        place = below
    times[place], codes[place] = time, code
    return size
