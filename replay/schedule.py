"""What an engine returns, and what determined each start and end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from foretrace.replay.order import Prepared
    from foretrace.replay.program import Ints, Longs

UNBOUND = -1
"""Cause of a start that only its release bounds, or of an end after the task's own work."""
HOLDER = -2
"""Causes from here down name the task that gave the resource free: ``HOLDER - cause``."""


@dataclass(frozen=True)
class Schedule:
    """When every task of a program starts and ends."""

    start_ns: Longs
    end_ns: Longs
    holder: Ints  # the task whose end let this one have the resource; -1: it did not wait for one
    order: Ints  # moments (see `order`) so that each follows what determined it
    prepared: Prepared


def causes(schedule: Schedule) -> tuple[Ints, Ints]:
    """Return what determined the start and the end of each task.

    An edge is named by its row, the first of several that bind; `UNBOUND` and `HOLDER` say the
    rest. An end that its own work and an edge reach together counts as own work.
    """
    prepared = schedule.prepared
    into = prepared.into
    found: tuple[Ints, Ints] = _causes(
        schedule.start_ns,
        schedule.end_ns,
        schedule.holder,
        prepared.program.work_ns,
        into.first,
        into.other,
        into.lag_ns,
        into.edge,
    )
    return found


@njit(cache=True)
def _causes(
    start: Longs,
    end: Longs,
    holder: Ints,
    work: Longs,
    first: Ints,
    source: Ints,
    lag: Longs,
    edge: Ints,
) -> tuple[Ints, Ints]:
    count = len(start)
    moments = np.concatenate((start, end))
    cause = np.full(2 * count, UNBOUND, np.int32)
    for v in range(2 * count):
        if v >= count and end[v - count] == start[v - count] + work[v - count]:
            continue
        if v < count and holder[v] >= 0:
            cause[v] = HOLDER - holder[v]
            continue
        for p in range(first[v], first[v + 1]):
            if moments[source[p]] + lag[p] == moments[v]:
                cause[v] = edge[p]
                break
    return cause[:count], cause[count:]
