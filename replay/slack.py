"""How much room tasks have: how much later each could start with nothing ending later."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from foretrace.replaying.engine.program import Ints, Longs
    from foretrace.replaying.steady_state import Steady


def compute_slack(steady: Steady) -> Longs:
    """Return per row of the window how much later a task could start and nothing end later, in ns.

    "Nothing": the last end of the whole run. The order in which resources were handed out, and what
    sharing added to each task, is kept.
    """
    schedule, into = steady.schedule, steady.schedule.prepared.into
    latest = _find_latest(
        schedule.full_order,
        schedule.holder,
        schedule.stretch_ns,
        steady.program.work_ns,
        into.first,
        into.step,
        into.lag_ns,
        int(schedule.ends.max()),
        len(schedule.moments),
    )
    begin = steady.window * 2 * steady.program.tasks
    room: Longs = (latest - schedule.moments)[begin : begin + steady.program.tasks]
    return room


@njit(cache=True)
def _find_latest(
    order: Ints,
    holder: Ints,
    stretch: Longs,
    work: Longs,
    first: Ints,
    step: Longs,
    lag: Longs,
    deadline: int,
    size: int,
) -> Longs:
    """Return the latest time of each moment that delays no end beyond *deadline*."""
    count = len(work)
    latest = np.full(size, deadline, np.int64)
    for moment in order[::-1]:
        v = moment % (2 * count)
        base = moment - v
        if v < count:
            own = work[v] + (stretch[base // 2 + v] if len(stretch) else 0)
            latest[moment] = min(latest[moment], latest[moment + count] - own)
            held_by = holder[base // 2 + v]
            if held_by >= 0:
                release = held_by // count * 2 * count + count + held_by % count
                latest[release] = min(latest[release], latest[moment])
        for p in range(first[v], first[v + 1]):
            source = base + step[p]
            if source >= 0:
                latest[source] = min(latest[source], latest[moment] - lag[p])
    return latest
