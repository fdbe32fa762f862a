"""Where an unchanged replay and its recording part: a timeline in, the place that counts most out.

A task cannot be later than everything that it waits for makes it: neither in a replay, nor in a
recording that the same rules explain. Where one of the two is later than the other by more than
all that a task waits for is, a rule does not hold, and that is where they part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foretrace.graph.model import EDGE_KINDS
from foretrace.replaying.engine.program import END_END, END_START, START_END

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foretrace.replaying.engine.program import Program
    from foretrace.replaying.timeline import Timeline

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]


NOTHING, OWN_START = -1, -2


@dataclass(frozen=True)
class Parting:
    """A task, and how much later it is in the one than in the other, beyond what it waits for.

    It is the recording that is later where ``is_recorded``, else the replay. ``largest_ns`` is
    that of ``task``, a row of the graph; ``step_ns`` all of a step, at tasks of its name and lane.
    ``cause`` is the row that it waits for in the replay (−1: none), ``why`` the kind of that edge,
    and ``rule`` what inferred it. ``is_seam``: they part where one window follows another.
    """

    task: int
    is_recorded: bool
    largest_ns: float
    step_ns: float
    cause: int
    why: str
    rule: str
    is_seam: bool


@dataclass(frozen=True)
class _Lateness:
    """Of each moment, starts before ends: how much later than what it waits for, and by which edge.

    The edge is −1 where nothing comes before, and `OWN_START` of an end that follows its start.
    """

    own_ns: Floats
    edge: Ints


def find_parting(timeline: Timeline) -> Parting | None:
    """Return where the replay of a graph and its recording part most; None where nowhere.

    Only what lies on one chain of causes counts: it leads back from the pace-setting lane to
    itself, and along it the differences add up to that of the step.
    """
    graph, steady = timeline.graph, timeline.steady
    program, count = steady.program, len(graph.tasks)
    longer_ns = graph.measured_step_ns * graph.steps - timeline.period_ns
    late = _measure_lateness(timeline, 1.0 if longer_ns > 0 else -1.0, abs(longer_ns))
    chain = _follow_back(late.edge, program, steady.pace)
    chain = chain[late.own_ns[chain] > 0]
    if not len(chain):
        return None
    tasks = graph.tasks.take(chain % count)
    names = tasks["lane"].astype(str) + " " + tasks["name"].astype(str)
    kind = np.unique(names.to_numpy(str), return_inverse=True)[1]
    sums = np.bincount(kind, late.own_ns[chain])
    same = chain[kind == np.argmax(sums)]
    moment = int(same[np.argmax(late.own_ns[same])])
    inherits, edge = int(late.edge[moment]), _find_binding(timeline, moment)
    return Parting(
        task=moment % count,
        is_recorded=longer_ns > 0,
        largest_ns=float(late.own_ns[moment]),
        step_ns=float(sums.max()) / graph.steps,
        cause=int(program.src[edge]) if edge >= 0 else -1,
        why=list(EDGE_KINDS)[program.kind[edge]] if edge >= 0 else "",
        rule=str(graph.edges["rule"].iat[edge]) if 0 <= edge < len(graph.edges) else "",
        is_seam=inherits >= 0 and bool(program.shift[inherits]),
    )


def _measure_lateness(timeline: Timeline, sign: float, longer_ns: float) -> _Lateness:
    """Compare every moment with what it waits for; a repetition later is *longer_ns* later."""
    program, count = timeline.steady.program, len(timeline.graph.tasks)
    recorded = _read_recorded(timeline)
    late = sign * (recorded - np.concatenate([timeline.start_ns, timeline.end_ns]))
    src, dst = _find_moments(program, count)
    passed = late[src] - program.shift * longer_ns
    inherited = np.concatenate([np.full(count, -np.inf), late[:count]])
    edge = np.repeat([NOTHING, OWN_START], count)
    np.maximum.at(inherited, dst, passed)
    binding = np.flatnonzero(passed == inherited[dst])
    binding = binding[(dst[binding] < count) | (passed[binding] > late[dst[binding] % count])]
    edge[dst[binding]] = binding
    own = np.where(edge == NOTHING, 0.0, late - inherited)
    return _Lateness(own, edge)


def _find_binding(timeline: Timeline, moment: int) -> int:
    """Return the edge that ends last in the replay of those into *moment*; `NOTHING` of none."""
    program = timeline.steady.program
    src, dst = _find_moments(program, program.tasks)
    into = np.flatnonzero(dst == moment)
    if not len(into):
        return NOTHING
    replayed = np.concatenate([timeline.start_ns, timeline.end_ns])
    ends = replayed[src[into]] + program.lag_ns[into] - program.shift[into] * timeline.period_ns
    return int(into[np.argmax(ends)])


def _find_moments(program: Program, count: int) -> tuple[Ints, Ints]:
    """Return the moments that each edge ties: of *count* tasks the starts, then the ends."""
    anchor = program.anchor
    from_end = (anchor == END_START) | (anchor == END_END)
    to_end = (anchor == END_END) | (anchor == START_END)
    return program.src + count * from_end, program.dst + count * to_end


def _read_recorded(timeline: Timeline) -> Floats:
    """Return recorded starts and ends; a call that was blocked begins when it no longer is.

    That is how the replay has it, but for calls that wait for work to end.
    """
    program, tasks = timeline.steady.program, timeline.graph.tasks
    began = tasks["start_ns"].to_numpy(np.float64)
    ended = began + tasks["duration_ns"].to_numpy()
    waits = np.zeros(len(tasks), bool)
    waits[program.dst[program.anchor >= END_END]] = True
    unblocked = np.where(waits, began, np.maximum(began, ended - program.work_ns))
    return np.concatenate([unblocked, ended]) - began.min()


def _follow_back(edge: Ints, program: Program, moment: int) -> Ints:
    """Return the moments of the chain that closes on itself, or all up to where it begins."""
    count = program.tasks
    src, _ = _find_moments(program, count)
    seen: dict[int, int] = {}
    while moment not in seen:
        seen[moment] = len(seen)
        by = edge[moment]
        if by == NOTHING:
            return np.array([*seen])
        moment = moment - count if by == OWN_START else int(src[by])
    return np.array([*seen][seen[moment] :])
