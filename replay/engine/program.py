"""What the engines run: a graph lowered to plain arrays, to be repeated a number of times.

Task ``i`` is row ``i % tasks`` of the graph in repetition ``i // tasks``. A task has two moments,
its start and its end, and an edge ties one moment of ``src`` to one moment of ``dst``. Moments are
numbered repetition by repetition: the starts of all its tasks, then their ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from foretrace.errors import GraphError

if TYPE_CHECKING:
    from numpy.typing import NDArray

Longs: TypeAlias = "NDArray[np.int64]"
Ints: TypeAlias = "NDArray[np.int32]"
Bytes: TypeAlias = "NDArray[np.int8]"
Flags: TypeAlias = "NDArray[np.bool_]"
Floats: TypeAlias = "NDArray[np.float64]"

END_START = 0
"""``dst`` starts no earlier than the end of ``src`` plus the lag (order on a lane)."""
START_START = 1
"""``dst`` starts no earlier than the start of ``src`` plus the lag (a launch)."""
END_END = 2
"""``dst`` ends no earlier than the end of ``src`` plus the lag, possibly negative (a return)."""
START_END = 3
"""``dst`` ends no earlier than the start of ``src`` plus the lag (a full launch queue)."""


class ReplayError(GraphError):
    """A program cannot be replayed; ``tasks`` are the indices of some tasks at fault."""

    def __init__(self, text: str, tasks: tuple[int, ...] = ()) -> None:
        super().__init__(text)
        self.tasks = tasks


class Sharing(NamedTuple):
    """Groups of tasks with one rate, the links they take, and the groups that slow them.

    ``x`` of group ``g`` are ``x[first_x[g]]`` to ``x[first_x[g + 1]]``.
    """

    group: Ints  # of each task of the window; −1: at full speed, whatever else runs
    share: Floats  # speed of each group while a neighbour runs
    first_neighbour: Ints
    neighbour: Ints  # groups
    first_route: Ints
    link: Ints
    use: Floats  # share of the link that one task takes at full speed
    first_user: Ints  # of each link
    user: Ints  # groups


@dataclass(frozen=True)
class Program:
    """A lowered graph: ``tasks`` rows, the edges between them, and how often all is repeated.

    A task starts when every edge into its start, and its release, allow it. One that needs a
    resource then queues, first come first served (ready time, then index), until nobody holds
    it. A task ends after its own work, and when every edge into its end allows it. A holder
    occupies its resource from start to end, waiting included; the others only let a holder pass.
    Own work takes longer while the task shares links with others, or others slow it.
    An edge leads to the repetition ``shift`` later; beyond the last one it leads nowhere.
    """

    work_ns: Longs  # own work of each task
    lane: Ints  # row in the graph's lanes
    resource: Ints  # exclusive resource that the task needs; -1: none
    holds: Flags  # occupies the resource (True) or only waits while another task holds it
    src: Ints
    dst: Ints
    lag_ns: Longs
    anchor: Bytes  # END_START, START_START, END_END or START_END
    kind: Bytes  # position in EDGE_KINDS of graph.model, for breakdowns
    shift: Ints
    release_ns: Longs  # no start before this moment, in the first repetition
    repetitions: int
    sharing: Sharing | None = None  # whose rates depend on what else runs; none: nobody's

    @property
    def tasks(self) -> int:
        """Tasks in one repetition."""
        return len(self.work_ns)

    @property
    def moments(self) -> int:
        """Moments in all repetitions."""
        return 2 * self.tasks * self.repetitions

    @property
    def has_resources(self) -> bool:
        """Whether tasks need resources or share rates, so that the event-driven engine must run."""
        return self.sharing is not None or bool((self.resource >= 0).any())


def check_program(program: Program) -> None:
    """Raise `ReplayError` unless the compiled engines may run *program* without reading astray."""
    count = program.tasks
    for name in ("lane", "resource", "holds", "release_ns"):
        _check_length(name, len(getattr(program, name)), count, "tasks")
    if program.sharing is not None:
        _check_length("sharing", len(program.sharing.group), count, "tasks")
    for name in ("dst", "lag_ns", "anchor", "kind", "shift"):
        _check_length(name, len(getattr(program, name)), len(program.src), "edges")
    for name in ("src", "dst"):
        _check_range(name, getattr(program, name), count)
    _check_range("anchor", program.anchor, START_END + 1)
    _check_range("shift", program.shift, np.iinfo(np.int32).max)
    for name in ("work_ns", "release_ns"):
        negative = np.flatnonzero(getattr(program, name) < 0)
        if len(negative):
            task = int(negative[0])
            value = int(getattr(program, name)[task])
            raise ReplayError(f"program: {name} of task {task} is negative ({value})", (task,))


def _check_length(name: str, length: int, count: int, what: str) -> None:
    if length != count:
        raise ReplayError(f"program: {name} has {length} entries for {count} {what}")


def _check_range(name: str, values: Ints | Bytes, limit: int) -> None:
    if not len(values) or (values.min() >= 0 and values.max() < limit):
        return
    edge = int(np.flatnonzero((values < 0) | (values >= limit))[0])
    raise ReplayError(
        f"program: {name} of edge {edge} is {values[edge]}, expected 0 to {limit - 1}"
    )
