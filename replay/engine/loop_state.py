"""What the event-driven engine reads and changes, as arrays, and how they are before it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from foretrace.replaying.engine.program import Flags, Floats, Ints, Longs, Program, Sharing
    from foretrace.replaying.engine.topological import GroupedEdges, Prepared

Records: TypeAlias = "np.recarray[Any, Any]"

NEVER = np.iinfo(np.int64).max
_UNKNOWN = np.iinfo(np.int64).min


class Load(NamedTuple):
    """What the engine reads."""

    work: Longs
    resource: Ints
    holds: Flags
    first: Ints  # edges out of each moment
    step: Longs
    lag: Longs


class State(NamedTuple):
    """What the engine changes."""

    moments: Longs  # the latest that is known to bind, final once fixed
    missing: Ints  # what each moment still waits to hear of
    holder: Ints
    order: Ints
    stack: Ints  # fixed moments to be expanded
    times: Longs  # heap of events, by (time, code)
    codes: Longs  # -1 - resource: its release; otherwise the task that asks to start
    occupant: Ints  # of each resource: who holds it
    last: Ints  # who held it before
    free_at: Longs  # since when it is free
    head: Ints  # first and last of its queue
    tail: Ints
    behind: Ints  # of each task: the next in the same queue, then in the same group


GROUP = np.dtype(
    [
        ("share", np.float64),  # speed while a neighbour runs
        ("first_neighbour", np.int32),  # of the flows' neighbours
        ("end_neighbour", np.int32),
        ("first_route", np.int32),  # of the flows' routes
        ("end_route", np.int32),
        ("work", np.float64),  # what a task that ran all along has done, in ns at full speed
        ("lost", np.float64),  # ns that it was held back by shared links
        ("since", np.int64),  # the time at which both were summed up
        ("fill_rate", np.float64),  # that the links allow
        ("rate", np.float64),
        ("running", np.int32),  # tasks
        ("head", np.int32),  # one of them
        ("busy", np.int32),  # neighbours with running tasks
        ("end", np.int64),  # when the next of its tasks is done
        ("refill", np.bool_),  # its links must be shared anew
        ("is_marked", np.bool_),  # its rate must be worked out anew
        ("marked", np.int32),  # list of the marked groups, from the first record on
        ("is_tied", np.bool_),  # in the component that is being filled
        ("tied", np.int32),  # list of the groups tied together, from the first record on
        ("limit", np.float64),
    ],
    align=True,
)
"""A group: its place in the other arrays, what it does, and scratch."""
LINK = np.dtype(
    [
        ("first_user", np.int32),  # of the flows' users
        ("end_user", np.int32),
        ("left", np.float64),  # capacity that no settled transfer takes
        ("wanted", np.float64),  # by the others at full speed
        ("users", np.int64),  # the others
        ("binds", np.bool_),  # holds back all of them
        ("is_met", np.bool_),  # in a component that was filled just now
        ("met", np.int32),  # list of the links met, from the first record on
    ],
    align=True,
)
"""A link: the groups over it, and scratch."""
ROUTE = np.dtype([("link", np.int32), ("use", np.float64)], align=True)
TALLY = np.dtype(
    [("now", np.int64), ("marked", np.int64), ("met", np.int64), ("tied", np.int64)], align=True
)
"""The time, and how long the lists in groups and links are."""


class Flows(NamedTuple):
    """What changes while tasks share.

    Between two events all rates are constant. Work is summed up in float64 from the moment a group
    begins to run, and an end is rounded to whole ns once, when it is known: nothing drifts.
    """

    group: Ints  # of each task of the window; −1: always at full speed
    groups: Records
    links: Records
    routes: Records  # of the groups, one after another
    neighbours: Ints  # of the groups, one after another
    users: Ints  # groups over each link, one after another
    earliest: Ints  # tree over groups: who ends first; leaves from the middle on
    tally: Records  # one
    goal: Floats  # of each task: work of its group at which it is done
    lost: Longs  # of each task: ns that sharing links added; first, that its group had lost before
    stretch: Longs  # of each task: ns added in all


def make_load(program: Program, out: GroupedEdges) -> Load:
    """Return what the engine reads of *program*, whose edges are grouped as *out*.

    Tasks that share and need no resource get one that nobody holds: they start in their turn.
    """
    resource, holds = program.resource, program.holds
    if program.sharing is not None:
        freely = (program.sharing.group >= 0) & (resource < 0)
        resource = np.where(freely, resource.max(initial=-1) + 1, resource).astype(np.int32)
        holds = holds & ~freely
    return Load(program.work_ns, resource, holds, out.first, out.step, out.lag_ns)


def make_state(prepared: Prepared, resource: Ints) -> State:
    """Return the state before anything ran; *resource* is the load's."""
    program, into = prepared.program, prepared.into
    count = program.moments // 2
    resources = int(resource.max(initial=-1)) + 1
    events = int(np.count_nonzero(resource >= 0)) * program.repetitions + resources + 1
    moments = np.full((program.repetitions, 2, program.tasks), _UNKNOWN, np.int64)
    moments[:, 0] = 0
    moments[:1, 0] = program.release_ns
    return State(
        moments=moments.ravel(),
        missing=_count_missing(program.repetitions, into.first, into.step),
        holder=np.full(count, -1, np.int32),
        order=np.empty(2 * count, np.int32),
        stack=np.empty(2 * count, np.int32),
        times=np.empty(events, np.int64),
        codes=np.empty(events, np.int64),
        occupant=np.full(resources, -1, np.int32),
        last=np.full(resources, -1, np.int32),
        free_at=np.zeros(resources, np.int64),
        head=np.full(resources, -1, np.int32),
        tail=np.full(resources, -1, np.int32),
        behind=np.full(count, -1, np.int32),
    )


def make_flows(sharing: Sharing, tasks: int) -> Flows:
    """Return the groups of *sharing* at rest, for so many unrolled *tasks*."""
    count = len(sharing.share)
    leaves = 1 << (count - 1).bit_length()
    groups, links = _make_records(GROUP, leaves), _make_records(LINK, len(sharing.first_user) - 1)
    groups.fill_rate, groups.rate, groups.head, groups.end = 1.0, 1.0, -1, NEVER
    groups.share[:count] = sharing.share
    for name, first in (("route", sharing.first_route), ("neighbour", sharing.first_neighbour)):
        groups[f"first_{name}"][:count], groups[f"end_{name}"][:count] = first[:-1], first[1:]
    links.first_user, links.end_user = sharing.first_user[:-1], sharing.first_user[1:]
    routes = _make_records(ROUTE, len(sharing.link))
    routes.link, routes.use = sharing.link, sharing.use
    return Flows(
        group=sharing.group,
        groups=groups,
        links=links,
        routes=routes,
        neighbours=sharing.neighbour,
        users=sharing.user,
        earliest=_make_tree(leaves),
        tally=_make_records(TALLY, 1),
        goal=np.empty(tasks),
        lost=np.zeros(tasks, np.int64),
        stretch=np.zeros(tasks, np.int64),
    )


def _make_tree(leaves: int) -> Ints:
    """Return a tree in which each node names the first leaf below it; the root is at 1.

    >>> _make_tree(4).tolist()
    [0, 0, 0, 2, 0, 1, 2, 3]
    """
    levels = [np.arange(leaves, dtype=np.int32)]
    while len(levels[-1]) > 1:
        levels.append(levels[-1][::2])
    return np.concatenate([np.zeros(1, np.int32), *levels[::-1]])


def _make_records(dtype: np.dtype[Any], count: int) -> Records:
    return np.zeros(count, dtype).view(np.recarray)


@njit(cache=True)
def _count_missing(repetitions: int, first: Ints, step: Longs) -> Ints:
    """Count what each moment waits to hear of: edges into it, and its start for an end."""
    count = (len(first) - 1) // 2
    missing = np.zeros(2 * count * repetitions, np.int32)
    for base in range(0, len(missing), max(2 * count, 1)):
        for v in range(2 * count):
            awaited = 1 if v >= count else 0
            for p in range(first[v], first[v + 1]):
                if base + step[p] >= 0:
                    awaited += 1
            missing[base + v] = awaited
    return missing
