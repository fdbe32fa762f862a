"""The order in which the moments of a program can be computed, and the edges laid out for it.

A *moment* is the start (``i``) or the end (``n + i``) of task ``i`` of ``n``. A call that waits for
the kernel it launched is a cycle among tasks, yet none among moments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

from foretrace.replay.program import END_END, END_START, START_END, ReplayError, check_program

if TYPE_CHECKING:
    from foretrace.replay.program import Bytes, Flags, Ints, Longs, Program

NAMED = 8
"""How many tasks an error names at most."""
_NEW, _OPEN, _PLACED = 0, 1, 2


@dataclass(frozen=True)
class Grouped:
    """Edges grouped by a moment: those of moment ``v`` are ``first[v]`` to ``first[v + 1]``."""

    first: Ints
    other: Ints  # the moment at the other side
    lag_ns: Longs
    edge: Ints  # row in the program's edges, ascending within a moment


@dataclass(frozen=True)
class Prepared:
    """A program with its edges grouped by the moment they lead to, ready for either engine."""

    program: Program
    into: Grouped


def prepare(program: Program) -> Prepared:
    """Check *program* and group its edges; raise `ReplayError` where a column is out of range."""
    check_program(program)
    return Prepared(program, _group(program, to_destination=True))


def outgoing(program: Program) -> Grouped:
    """Return the edges grouped by the moment they leave from."""
    return _group(program, to_destination=False)


def _group(program: Program, *, to_destination: bool) -> Grouped:
    count = program.tasks * program.repetitions
    from_end = (program.anchor == END_START) | (program.anchor == END_END)
    to_end = (program.anchor == START_END) | (program.anchor == END_END)
    sources, targets = (program.src, from_end), (program.dst, to_end)
    (key, key_at_end), (other, other_at_end) = (
        (targets, sources) if to_destination else (sources, targets)
    )
    return Grouped(*_grouped(count, key, other, program.lag_ns, key_at_end, other_at_end))


def topological(prepared: Prepared) -> Ints:
    """Return the moments so that each follows everything it depends on.

    An end that waits for nothing but its own work is left out: it is known with its start. Edges
    lead to the same or to a later repetition, so the order of one repetition serves for all.

    Raises
    ------
    ReplayError
        The edges form a cycle; the tasks on it are named.
    """
    program, into = prepared.program, prepared.into
    order, size, cycle = _depth_first(program.tasks, program.repetitions, into.first, into.other)
    if len(cycle):
        tasks = distinct(cycle % program.tasks)
        raise ReplayError(f"edges form a cycle through {listed(tasks)}", tasks)
    later = np.arange(program.repetitions, dtype=np.int32)[:, None] * np.int32(program.tasks)
    ready: Ints = (order[:size] + later).ravel()
    return ready


def distinct(tasks: Any) -> tuple[int, ...]:
    """Return *tasks* once each, in order of first appearance."""
    return tuple(dict.fromkeys(int(task) for task in tasks))


def listed(tasks: tuple[int, ...]) -> str:
    """Return *tasks* for an error text, shortened."""
    shown = ", ".join(str(task) for task in tasks[:NAMED])
    return f"tasks {shown}" + (f" and {len(tasks) - NAMED} more" if len(tasks) > NAMED else "")


@njit(cache=True)
def _grouped(
    count: int, key: Ints, other: Ints, lag: Longs, key_at_end: Flags, other_at_end: Flags
) -> tuple[Ints, Ints, Longs, Ints]:
    """Sort edges by moment, counting; edges of one moment stay in edge order."""
    first = np.zeros(2 * count + 1, np.int32)
    for e in range(len(key)):
        first[key[e] + key_at_end[e] * count + 1] += 1
    for v in range(2 * count):
        first[v + 1] += first[v]
    place = first[:-1].copy()
    partner = np.empty(len(key), np.int32)
    lags = np.empty(len(key), np.int64)
    edge = np.empty(len(key), np.int32)
    for e in range(len(key)):
        v = key[e] + key_at_end[e] * count
        p = place[v]
        place[v] = p + 1
        partner[p] = other[e] + other_at_end[e] * count
        lags[p] = lag[e]
        edge[p] = e
    return first, partner, lags, edge


@njit(cache=True)
def _depth_first(tasks: int, repetitions: int, first: Ints, source: Ints) -> tuple[Ints, int, Ints]:
    """Post-order of a depth-first walk against the edges of repetition 0, low index to high.

    Neighbours in the order are mostly neighbours in memory, and a cycle stands on the stack.
    Only the last repetition shows all edges that lead to an end.
    """
    count = tasks * repetitions
    order, size = np.empty(2 * tasks, np.int32), 0
    state = np.zeros(2 * tasks, np.int8)
    cursor = np.concatenate((first[:tasks], first[count : count + tasks]))
    waits = np.ones(2 * tasks, np.bool_)
    for row in range(tasks):
        end = 2 * count - tasks + row
        waits[tasks + row] = first[end] < first[end + 1]
    stack, depth = np.empty(2 * tasks, np.int32), 0
    for moment in range(2 * tasks):
        root = moment // 2 + moment % 2 * tasks  # each start, then its end
        if state[root] == _NEW and waits[root]:
            stack[0], state[root], depth = root, _OPEN, 1
        while depth > 0:
            v = stack[depth - 1]
            below = _unplaced(v, tasks, count, waits, first, source, state, cursor)
            if below < 0:
                order[size], state[v] = v if v < tasks else v - tasks + count, _PLACED
                size += 1
                depth -= 1
            elif state[below] == _OPEN:
                begin = depth - 1
                while stack[begin] != below:
                    begin -= 1
                return order, size, stack[begin:depth].copy()
            else:
                stack[depth], state[below] = below, _OPEN
                depth += 1
    return order, size, stack[:0].copy()


@njit(cache=True)
def _unplaced(
    v: int,
    tasks: int,
    count: int,
    waits: Flags,
    first: Ints,
    source: Ints,
    state: Bytes,
    cursor: Ints,
) -> int:
    """Return a moment that *v* depends on and that has no place in the order yet, or -1."""
    if v >= tasks and state[v - tasks] != _PLACED:
        return v - tasks
    last = first[v + 1] if v < tasks else first[v - tasks + count + 1]
    while cursor[v] < last:
        u = source[cursor[v]]
        if u >= count:
            u += tasks - count
            if not waits[u]:
                u -= tasks  # this end is known with its start
        if state[u] != _PLACED:
            return int(u)
        cursor[v] += 1
    return -1
