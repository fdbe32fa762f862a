"""The event-driven engine: resources are served in order of time, the rest is expanded at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numba import njit

from foretrace.replay.order import Prepared, distinct, listed, outgoing, topological
from foretrace.replay.program import ReplayError
from foretrace.replay.schedule import Schedule

if TYPE_CHECKING:
    from foretrace.replay.order import Grouped
    from foretrace.replay.program import Flags, Ints, Longs, Program

_NEVER = np.iinfo(np.int64).min


class _Load(NamedTuple):
    """What the event-driven engine reads."""

    work: Longs
    resource: Ints
    holds: Flags
    first: Ints  # edges out of each moment
    step: Longs
    lag: Longs


class _State(NamedTuple):
    """What the event-driven engine changes."""

    moments: Longs  # the latest that is known to bind, final once fixed
    missing: Ints  # what each moment still waits to hear of
    holder: Ints
    order: Ints
    stack: Ints  # fixed moments to be expanded
    times: Longs  # heap of events, by (time, code)
    codes: Longs  # -1 - resource: its release; otherwise the task that requests its resource
    occupant: Ints  # of each resource: who holds it
    last: Ints  # who held it before
    free_at: Longs  # since when it is free
    head: Ints  # first and last of its queue
    tail: Ints
    behind: Ints  # of each task: the next in the same queue


def run_events(prepared: Prepared, out: Grouped | None = None) -> Schedule:
    """Replay with resources: first come, first served by (ready time, index).

    A task that becomes ready in the past, because a negative lag let its predecessor return
    before the present, is served next. *out* is `outgoing` of the program, where it is known.

    Raises
    ------
    ReplayError
        The edges form a cycle, or a holder waits for a task that waits for the same resource.
    """
    program = prepared.program
    out = out or outgoing(program)
    state = _begin(prepared)
    load = _Load(program.work_ns, program.resource, program.holds, out.first, out.step, out.lag_ns)
    order = state.order[: _events(load, state)]
    if len(order) < program.moments:
        topological(prepared)  # a cycle explains itself
        raise _deadlock(program, state, order)
    return Schedule(state.moments, state.holder, state.order, prepared)


def _deadlock(program: Program, state: _State, order: Ints) -> ReplayError:
    shape = program.repetitions, 2, program.tasks
    queued = state.missing == 0
    queued[order] = False
    holders = distinct(state.occupant[state.occupant >= 0])
    waiting = distinct(np.flatnonzero(queued.reshape(shape)[:, 0].ravel()))
    return ReplayError(
        f"deadlock: {listed(holders)} hold a resource that {listed(waiting)} queue for,"
        " and wait for them",
        holders + waiting,
    )


def _begin(prepared: Prepared) -> _State:
    """Return the state before anything ran."""
    program, into = prepared.program, prepared.into
    count = program.moments // 2
    resources = int(program.resource.max(initial=-1)) + 1
    users = int(np.count_nonzero(program.resource >= 0)) * program.repetitions
    moments = np.full((program.repetitions, 2, program.tasks), _NEVER, np.int64)
    moments[:, 0] = 0
    moments[:1, 0] = program.release_ns
    return _State(
        moments=moments.ravel(),
        missing=_missing(program.repetitions, into.first, into.step),
        holder=np.full(count, -1, np.int32),
        order=np.empty(2 * count, np.int32),
        stack=np.empty(2 * count, np.int32),
        times=np.empty(users + resources + 1, np.int64),
        codes=np.empty(users + resources + 1, np.int64),
        occupant=np.full(resources, -1, np.int32),
        last=np.full(resources, -1, np.int32),
        free_at=np.zeros(resources, np.int64),
        head=np.full(resources, -1, np.int32),
        tail=np.full(resources, -1, np.int32),
        behind=np.full(count, -1, np.int32),
    )


@njit(cache=True)
def _missing(repetitions: int, first: Ints, step: Longs) -> Ints:
    """Count what each moment waits to hear of: edges into it, and its start for an end."""
    count = (len(first) - 1) // 2
    missing = np.zeros(2 * count * repetitions, np.int32)
    for base in range(0, len(missing), max(2 * count, 1)):
        for v in range(2 * count):
            known = 1 if v >= count else 0
            for p in range(first[v], first[v + 1]):
                if base + step[p] >= 0:
                    known += 1
            missing[base + v] = known
    return missing


@njit(cache=True)
def _events(load: _Load, state: _State) -> int:  # noqa: C901, PLR0912, PLR0915  # one hot loop
    """Run until nothing moves any more; return how many moments got their time.

    A moment whose time is fixed goes on the stack and is expanded, however far ahead it lies.
    Only requests and releases of resources pass through the heap: at one time releases first
    (negative codes), then requests by index.
    """
    work, resource, holds, first, step, lag = load
    moments, missing, holder, order, stack, times, codes = state[:7]
    occupant, last, free_at, head, tail, behind = state[7:]
    count, depth, placed, size = len(work), 0, 0, 0
    block = 2 * count
    for i in range(len(holder) - 1, -1, -1):  # the stack gives low indices first
        v = i // count * block + i % count
        if missing[v] == 0 and resource[i % count] < 0:
            stack[depth] = v
            depth += 1
        elif missing[v] == 0:
            size = _push(times, codes, size, moments[v], i)
    while depth > 0 or size > 0:
        while depth > 0:
            depth -= 1
            v = stack[depth]
            order[placed] = v
            placed += 1
            w = v % block
            base, row = v - w, w % count
            own = 1 if w < count else 0  # besides its edges, a start leads to its own end
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
                if missing[u] == 0 and at < count and resource[at] >= 0:
                    size = _push(times, codes, size, moments[u], u // block * count + at)
                elif missing[u] == 0:
                    stack[depth] = u
                    depth += 1
            if w >= count and resource[row] >= 0 and holds[row]:
                size = _push(times, codes, size, moments[v], -1 - resource[row])
        if size > 0:
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
                stack[depth] = v
                depth += 1
    return placed


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
