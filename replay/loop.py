"""The event-driven engine, compiled: known moments are expanded, the rest waits its turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from numba import njit

from foretrace.replay.rates import enter, leave, settle
from foretrace.replay.state import NEVER

if TYPE_CHECKING:
    from foretrace.replay.program import Ints, Longs
    from foretrace.replay.sharing import Sharing
    from foretrace.replay.state import Flows, Load, State


@njit(cache=True)
def run_loop(  # noqa: C901, PLR0912, PLR0915  # one hot loop
    load: Load, state: State, sharing: Sharing | None, flows: Flows | None
) -> int:
    """Run until nothing moves any more; return how many moments got their time.

    A moment whose time is fixed goes on the stack and is expanded, however far ahead it lies.
    Only requests and releases of resources, and starts and ends of what shares, wait for their
    time: at one time ends first, then releases (negative codes), then requests by index. Without
    *sharing* what belongs to it is not even compiled.
    """
    work, resource, holds, asks, first, step, lag = load
    moments, missing, holder, order, stack, times, codes = state[:7]
    occupant, last, free_at, head, tail, behind = state[7:]
    count, depth, placed, size = len(work), 0, 0, 0
    block = 2 * count
    for i in range(len(holder) - 1, -1, -1):  # the stack gives low indices first
        v = i // count * block + i % count
        if missing[v] == 0 and not asks[i % count]:
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
            if sharing is not None:
                own = 0 if sharing.group[row] >= 0 else own
            for p in range(first[w], first[w + 1] + own):
                if p < first[w + 1]:
                    u, earliest = base + step[p], moments[v] + lag[p]
                else:
                    u, earliest = v + count, moments[v] + work[row]
                if u >= len(moments):
                    continue
                moments[u] = max(moments[u], earliest)
                missing[u] -= 1
                at = u % block
                if missing[u] == 0 and at < count and asks[at]:
                    size = _push(times, codes, size, moments[u], u // block * count + at)
                elif missing[u] == 0:
                    stack[depth] = u
                    depth += 1
            if w >= count and resource[row] >= 0 and holds[row]:
                size = _push(times, codes, size, moments[v], -1 - resource[row])
        if flows is not None:
            tally, due = flows.tally[0], flows.groups[flows.earliest[1]].end
            coming = times[0] if size > 0 else NEVER
            if tally.marked > 0 and min(due, coming) > tally.now:
                settle(
                    flows.groups,
                    flows.links,
                    flows.routes,
                    flows.users,
                    tally,
                    flows.goal,
                    behind,
                    flows.earliest,
                )
                continue
            if due <= coming and due < NEVER:
                tally.now = max(tally.now, due)
                depth = _finish(load, state, flows, depth)
                continue
            if size > 0:
                tally.now = max(tally.now, coming)
        if size == 0:
            return placed
        now, code = times[0], codes[0]
        size = _pop(times, codes, size)
        r = resource[code % count] if code >= 0 else -1 - code
        if r < 0:  # it shares, and needs nothing of its own
            depth = _start(load, state, sharing, flows, code, depth)
            continue
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
            depth = _start(load, state, sharing, flows, int(i), depth)


@njit(cache=True)
def _start(
    load: Load,
    state: State,
    sharing: Sharing | None,
    flows: Flows | None,
    task: int,
    depth: int,
) -> int:
    """Fix the start of *task*, and let it run with its group; return the new depth of the stack.

    What a negative lag let start in the past has run at full speed until now.
    """
    count = len(load.work)
    row = task % count
    v = task // count * 2 * count + row
    if sharing is not None and flows is not None and sharing.group[row] >= 0:
        tally = flows.tally[0]
        left = load.work[row] - (tally.now - state.moments[v])
        if left > 0:
            flows.stretch[task, 0] = enter(
                flows.groups,
                flows.neighbours,
                tally,
                flows.goal,
                state.behind,
                sharing.group[row],
                task,
                left,
            )
        else:
            depth = _ended(state, v + count, state.moments[v] + load.work[row], depth)
    state.stack[depth] = v  # above its end: starts are expanded first
    return depth + 1


@njit(cache=True)
def _finish(load: Load, state: State, flows: Flows, depth: int) -> int:
    """End the task that is done first; return the new depth of the stack."""
    count, group = len(load.work), flows.groups[flows.earliest[1]]
    task = leave(
        flows.groups,
        flows.neighbours,
        flows.tally[0],
        flows.goal,
        state.behind,
        flows.earliest,
    )
    now, v = group.since, task // count * 2 * count + task % count
    added = now - state.moments[v] - load.work[task % count]
    by_links = round(group.lost) - flows.stretch[task, 0]
    by_links = min(max(by_links, 0), added)
    flows.stretch[task, 0], flows.stretch[task, 1] = by_links, added - by_links
    return _ended(state, v + count, now, depth)


@njit(cache=True)
def _ended(state: State, moment: int, now: int, depth: int) -> int:
    """Let the end *moment* know that its task's own work is done *now*; return the new depth."""
    state.moments[moment] = max(state.moments[moment], now)
    state.missing[moment] -= 1
    if state.missing[moment] > 0:
        return depth
    state.stack[depth] = moment
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
