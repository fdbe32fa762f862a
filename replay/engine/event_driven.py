"""The event-driven engine: what binds across lanes is served in order of time, the rest at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from foretrace.replaying.engine.event_loop import run_loop
from foretrace.replaying.engine.loop_state import make_flows, make_load, make_state
from foretrace.replaying.engine.program import ReplayError
from foretrace.replaying.engine.schedule import Schedule
from foretrace.replaying.engine.topological import (
    Prepared,
    distinct,
    group_outgoing,
    list_tasks,
    sort_moments,
)

if TYPE_CHECKING:
    from foretrace.replaying.engine.loop_state import State
    from foretrace.replaying.engine.program import Ints, Program
    from foretrace.replaying.engine.topological import GroupedEdges


def run_events(prepared: Prepared, out: GroupedEdges | None = None) -> Schedule:
    """Replay with resources and shared rates.

    A resource is served first come, first served by (ready time, index). A task that shares links
    or is slowed runs at a rate that is worked out anew at each start and end of such a task. One
    that becomes ready in the past, because a negative lag let its predecessor return before the
    present, is served next. *out* is `group_outgoing` of the program, where it is known.

    Raises
    ------
    ReplayError
        The edges form a cycle, or a holder waits for a task that waits for the same resource.
    """
    program = prepared.program
    load = make_load(program, out or group_outgoing(program))
    state = make_state(prepared, load.resource)
    sharing = program.sharing
    flows = None if sharing is None else make_flows(sharing, len(state.holder))
    order = state.order[: run_loop(load, state, flows)]
    if len(order) < program.moments:
        sort_moments(prepared)  # a cycle explains itself
        raise _explain_deadlock(program, state, order)
    if flows is None:
        return Schedule(state.moments, state.holder, order, prepared)
    by_links = np.clip(flows.lost, 0, flows.stretch, out=flows.lost)  # both are rounded
    return Schedule(state.moments, state.holder, order, prepared, flows.stretch, by_links)


def _explain_deadlock(program: Program, state: State, order: Ints) -> ReplayError:
    shape = program.repetitions, 2, program.tasks
    queued = state.missing == 0
    queued[order] = False
    holders = distinct(state.occupant[state.occupant >= 0])
    waiting = distinct(np.flatnonzero(queued.reshape(shape)[:, 0].ravel()))
    return ReplayError(
        f"deadlock: {list_tasks(holders)} hold a resource that {list_tasks(waiting)} queue for,"
        " and wait for them",
        holders + waiting,
    )
