"""Start and end of every task: the static engine, and the choice between the two.

Both engines return a `Schedule`; without resources they agree to the nanosecond.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import njit

from foretrace.replaying.engine.event_driven import run_events
from foretrace.replaying.engine.schedule import Schedule
from foretrace.replaying.engine.topological import Prepared, prepare, sort_moments

if TYPE_CHECKING:
    from foretrace.replaying.engine.program import Ints, Longs, Program


def run(program: Program) -> Schedule:
    """Replay *program* with the engine it needs.

    Raises
    ------
    ReplayError
        The edges form a cycle, or tasks wait for each other's resource forever.
    """
    prepared = prepare(program)
    if program.has_resources:
        return run_events(prepared)
    return run_static(prepared, sort_moments(prepared))


def run_static(prepared: Prepared, order: Ints) -> Schedule:
    """Replay in one pass over *order* per repetition, as if no task needed a resource.

    The order depends on the edges alone, so a program with other costs can reuse it.
    """
    program, into = prepared.program, prepared.into
    moments = np.empty(program.moments, np.int64)
    _run_in_order(
        moments, order, into.first, into.step, into.lag_ns, program.work_ns, program.release_ns
    )
    nobody = np.full(program.moments // 2, -1, np.int32)
    return Schedule(moments, nobody, order, prepared)


@njit(cache=True)
def _run_in_order(
    moments: Longs,
    order: Ints,
    first: Ints,
    step: Longs,
    lag: Longs,
    work: Longs,
    release: Longs,
) -> None:
    count = len(work)
    for base in range(0, len(moments), max(2 * count, 1)):
        for v in order:
            latest = moments[base + v] if v >= count else release[v] * (base == 0)
            for p in range(first[v], first[v + 1]):
                source = base + step[p]
                if source >= 0:
                    latest = max(latest, moments[source] + lag[p])
            moments[base + v] = latest
            if v < count:  # stands unless the end comes later in order
                moments[base + count + v] = latest + work[v]
