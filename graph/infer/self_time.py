"""Host threads as consecutive self-time segments.

In: the nested events of each host thread. Out: segments that never overlap on a thread, each
belonging to its innermost event, so that removing an operator removes exactly its own host time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]


BEHIND = 4
"""An event that lies so many times as long behind an operator as inside it follows it."""


class Segments(NamedTuple):
    """Segments in (thread, start) order; ``event`` and ``parent`` index the nested events.

    ``parent`` has one entry per event (−1: top level).
    """

    event: Ints
    start_ns: Ints
    end_ns: Ints
    parent: Ints


def nest(thread: Ints, start_ns: Ints, end_ns: Ints, atomic: Flags) -> Segments:
    """Cut nested events into self-time segments.

    Parameters
    ----------
    thread, start_ns, end_ns
        One row per event, sorted by (thread, start, −end).
    atomic
        Events that stay one segment whatever lies inside them (API calls).

    Returns
    -------
    Segments
        Pieces of length 0 are left out, except for atomic events. An event that lies for the most
        part behind the one in which it begins follows it: clocks and rounding let them overlap.

    >>> one = np.zeros(2, np.int64)
    >>> s = nest(one, np.array([0, 4]), np.array([10, 6]), np.zeros(2, bool))
    >>> s.event.tolist(), s.start_ns.tolist(), s.end_ns.tolist()
    ([0, 1, 0], [0, 4, 6], [4, 6, 10])
    """
    rows = len(thread)
    capacity = 2 * rows + 1
    event = np.empty(capacity, np.int64)
    begin = np.empty(capacity, np.int64)
    finish = np.empty(capacity, np.int64)
    parent = np.full(rows, -1, np.int64)
    count = _cut(
        thread.astype(np.int64),
        start_ns.astype(np.int64),
        end_ns.astype(np.int64),
        atomic.astype(np.bool_),
        event,
        begin,
        finish,
        parent,
    )
    return Segments(event[:count], begin[:count], finish[:count], parent)


@njit(cache=True)
def _is_behind(start: int, end: int, limit: int, whole: bool) -> bool:  # noqa: FBT001 -- compiled
    """Tell whether an event begins after *limit*, where another ends, or lies mostly behind it."""
    overlap = limit - start
    return overlap <= 0 or end - limit > (1 if whole else BEHIND) * overlap


@njit(cache=True)
def _cut(
    thread: Ints,
    start: Ints,
    end: Ints,
    atomic: Flags,
    event: Ints,
    begin: Ints,
    finish: Ints,
    parent: Ints,
) -> int:
    rows = len(thread)
    stack = np.empty(rows + 1, np.int64)
    limit = np.empty(rows + 1, np.int64)
    fresh = np.empty(rows + 1, np.bool_)
    depth = 0
    count = 0
    now = np.int64(0)
    for i in range(rows + 1):
        new_thread = i in (0, rows) or thread[i] != thread[i - 1]
        at = np.int64(0) if i == rows else start[i] if new_thread else max(start[i], now)
        # Close what has ended before this event begins, or for the most part of it.
        while depth > 0 and (
            new_thread or _is_behind(at, end[i], limit[depth - 1], atomic[stack[depth - 1]])
        ):
            top = depth - 1
            row = stack[top]
            if limit[top] > now or (atomic[row] and fresh[top]):
                event[count] = row
                begin[count] = now
                finish[count] = max(limit[top], now)
                count += 1
                now = finish[count - 1]
                at = at if new_thread else max(at, now)
            depth = top
            if depth > 0:
                fresh[depth - 1] = False
        if i == rows:
            break
        if depth == 0:
            now = at
        elif atomic[stack[depth - 1]]:
            parent[i] = stack[depth - 1]
            continue  # whatever lies inside an API call belongs to it
        else:
            row = stack[depth - 1]
            if at > now:
                event[count] = row
                begin[count] = now
                finish[count] = at
                count += 1
                fresh[depth - 1] = False
            now = at
            parent[i] = row
        stack[depth] = i
        last = end[i] if depth == 0 else min(end[i], limit[depth - 1])
        limit[depth] = max(last, at)
        fresh[depth] = True
        depth += 1
    return count
