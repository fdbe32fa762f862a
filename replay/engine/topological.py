"""The order in which the moments of a program can be computed, and the edges laid out for it.

A call that waits for the kernel it launched is a cycle among tasks, yet none among moments.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

from foretrace.replaying.engine.program import (
    END_END,
    END_START,
    START_END,
    ReplayError,
    check_program,
)

if TYPE_CHECKING:
    from foretrace.replaying.engine.program import Bytes, Ints, Longs, Program

NAMED = 8
"""How many tasks an error names at most."""
_NEW, _OPEN, _PLACED = 0, 1, 2


@dataclass(frozen=True)
class GroupedEdges:
    """Edges grouped by a moment: those of moment ``v`` are ``first[v]`` to ``first[v + 1]``.

    Moments are those of one repetition; ``step`` leads from a moment's repetition to the moment
    at the other side, whichever repetition that lies in.
    """

    first: Ints
    step: Longs
    lag_ns: Longs
    edge: Ints  # row in the program's edges

    def with_lags(self, lag_ns: Longs) -> GroupedEdges:
        """Return the same edges with the lags of another program."""
        return replace(self, lag_ns=lag_ns[self.edge])


@dataclass(frozen=True)
class Prepared:
    """A program with its edges grouped by the moment they lead to, ready for either engine."""

    program: Program
    into: GroupedEdges


def prepare(program: Program) -> Prepared:
    """Check *program* and group its edges; raise `ReplayError` where a column is out of range."""
    check_program(program)
    return Prepared(program, _group(program, to_destination=True))


def group_outgoing(program: Program) -> GroupedEdges:
    """Return the edges grouped by the moment they leave from."""
    return _group(program, to_destination=False)


def _group(program: Program, *, to_destination: bool) -> GroupedEdges:
    count = program.tasks
    from_end = (program.anchor == END_START) | (program.anchor == END_END)
    to_end = (program.anchor == START_END) | (program.anchor == END_END)
    source, target = program.src + from_end * count, program.dst + to_end * count
    beyond = program.shift.astype(np.int64) * (2 * count)
    key, step = (target, source - beyond) if to_destination else (source, target + beyond)
    across = np.flatnonzero(program.shift)
    across = across[np.argsort(-program.shift[across], kind="stable")]
    early_first = np.concatenate((across, np.flatnonzero(program.shift == 0)))
    return GroupedEdges(*_sort_edges(count, key, step, program.lag_ns, early_first))


def sort_moments(prepared: Prepared) -> Ints:
    """Return the moments of one repetition so that each follows everything it depends on.

    An end that waits for nothing but its own work is left out: it is known with its start. Edges
    lead to the same or to a later repetition, so the order of one repetition serves for all.

    Raises
    ------
    ReplayError
        The edges form a cycle; the tasks on it are named.
    """
    tasks, into = prepared.program.tasks, prepared.into
    order, size, cycle = _walk_depth_first(tasks, into.first, into.step)
    if len(cycle):
        on_cycle = distinct(cycle % tasks)
        raise ReplayError(f"edges form a cycle through {list_tasks(on_cycle)}", on_cycle)
    ready: Ints = order[:size]
    return ready


def distinct(tasks: Any) -> tuple[int, ...]:
    """Return *tasks* once each, in order of first appearance."""
    return tuple(dict.fromkeys(int(task) for task in tasks))


def list_tasks(tasks: tuple[int, ...]) -> str:
    """Return *tasks* for an error text, shortened."""
    shown = ", ".join(str(task) for task in tasks[:NAMED])
    return f"tasks {shown}" + (f" and {len(tasks) - NAMED} more" if len(tasks) > NAMED else "")


@njit(cache=True)
def _sort_edges(
    count: int, key: Longs, step: Longs, lag: Longs, order: Longs
) -> tuple[Ints, Longs, Longs, Ints]:
    """Sort edges by moment, counting; edges of one moment stay in the order given."""
    first = np.zeros(2 * count + 1, np.int32)
    for e in range(len(key)):
        first[key[e] + 1] += 1
    for v in range(2 * count):
        first[v + 1] += first[v]
    place = first[:-1].copy()
    steps, lags = np.empty(len(key), np.int64), np.empty(len(key), np.int64)
    edge = np.empty(len(key), np.int32)
    for e in order:
        p = place[key[e]]
        place[key[e]] = p + 1
        steps[p] = step[e]
        lags[p] = lag[e]
        edge[p] = e
    return first, steps, lags, edge


@njit(cache=True)
def _walk_depth_first(count: int, first: Ints, step: Longs) -> tuple[Ints, int, Ints]:
    """Post-order of a depth-first walk against the edges, from low index to high.

    Neighbours in the order are mostly neighbours in memory, and a cycle stands on the stack.
    """
    order, size = np.empty(2 * count, np.int32), 0
    state = np.zeros(2 * count, np.int8)
    cursor = first[:-1].copy()
    stack, depth = np.empty(2 * count, np.int32), 0
    for moment in range(2 * count):
        root = moment // 2 + moment % 2 * count  # each start, then its end
        if state[root] == _NEW and (root < count or first[root] < first[root + 1]):
            stack[0], state[root], depth = root, _OPEN, 1
        while depth > 0:
            v = stack[depth - 1]
            below = _find_unplaced(v, count, first, step, state, cursor)
            if below < 0:
                order[size], state[v] = v, _PLACED
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
def _find_unplaced(v: int, count: int, first: Ints, step: Longs, state: Bytes, cursor: Ints) -> int:
    """Return a moment of this repetition that *v* depends on and that has no place yet, or -1."""
    if v >= count and state[v - count] != _PLACED:
        return v - count
    while cursor[v] < first[v + 1]:
        u = step[cursor[v]]
        if u >= count and first[u] == first[u + 1]:
            u -= count  # this end is known with its start
        if u >= 0 and state[u] != _PLACED:
            return int(u)
        cursor[v] += 1
    return -1
