"""In which order lanes serve what becomes ready: the most urgent first.

In: exchanges of two legs, a push and then a pull, with an urgency. Out: the order on the lanes.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class SliceExchange(NamedTuple):
    """A push that is ready at ``ready_ns``, and a pull that is so ``between_ns`` after its end.

    The lower ``urgency`` goes first.
    """

    ready_ns: float
    urgency: int
    push_ns: float
    pull_ns: float
    between_ns: float = 0.0


PUSH, PULL = 0, 1


def serve(exchanges: Sequence[SliceExchange], *, apart: bool) -> list[tuple[int, int]]:
    """Return (exchange, leg) in the order in which their lanes begin them.

    Pushes and pulls have a lane each where they are *apart*, else they share one. A free lane takes
    the most urgent leg that is ready; what it has begun it finishes.

    Examples
    --------
    >>> last_layer, first_layer = SliceExchange(0, 1, 10, 10), SliceExchange(4, 0, 10, 10)
    >>> serve([last_layer, last_layer, first_layer], apart=False)
    [(0, 0), (2, 0), (2, 1), (0, 1), (1, 0), (1, 1)]
    """
    lanes = (PUSH, PULL) if apart else (PUSH, PUSH)
    coming: dict[int, list[tuple[float, int, int]]] = {lane: [] for lane in lanes}
    waiting: dict[int, list[tuple[int, int, int]]] = {lane: [] for lane in lanes}
    free = dict.fromkeys(lanes, 0.0)
    for at, each in enumerate(exchanges):
        heapq.heappush(coming[lanes[PUSH]], (each.ready_ns, at, PUSH))
    begun: list[tuple[int, int]] = []
    while any(coming.values()) or any(waiting.values()):
        now, lane = min((_begins(coming[lane], waiting[lane], free[lane]), lane) for lane in free)
        while coming[lane] and coming[lane][0][0] <= now:
            _, at, leg = heapq.heappop(coming[lane])
            heapq.heappush(waiting[lane], (exchanges[at].urgency, at, leg))
        _, at, leg = heapq.heappop(waiting[lane])
        begun.append((at, leg))
        each = exchanges[at]
        free[lane] = now + (each.push_ns if leg == PUSH else each.pull_ns)
        if leg == PUSH:
            heapq.heappush(coming[lanes[PULL]], (free[lane] + each.between_ns, at, PULL))
    return begun


def _begins(
    coming: list[tuple[float, int, int]], waiting: list[tuple[int, int, int]], free: float
) -> float:
    """Return when a lane can begin its next leg; infinity where nothing is to come."""
    if waiting:
        return free
    return max(free, coming[0][0]) if coming else float("inf")
