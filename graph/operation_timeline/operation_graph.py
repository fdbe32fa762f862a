"""The dependency graph of an operation-level timeline: pipeline stages times data-parallel ranks.

In: a trace of `tracer.readers.operation_timeline`. Out: a graph with one task per operation and one
"meeting" per communication, which its peers begin together.

The rules reproduce the published replays of StragglerAnalysis:

1. A rank computes in the recorded order, after its parameters were gathered. Forward k also
   follows its receive, backward k as well.
2. A send is ready when the computation of its data ends, a receive when the computation before it
   *of the same direction* has ended. Nothing waits for a send.
3. After the last computation: layer-norm gradients, embedding gradients (first and last stage of a
   replica together), reduce-scatter (the replicas of a stage together, or those of a shard),
   clipping (everybody), optimizer.
4. The recorded steps are samples: each begins for all ranks at once, when the one before has ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from foretrace.graph.model import EDGE_KINDS, OPERATOR_COLUMNS, Graph, Rules
from foretrace.graph.operation_timeline.operation_tables import (
    Edges,
    Tasks,
    make_edge_table,
    make_lane_table,
    make_task_table,
)
from foretrace.graph.operation_timeline.operations import (
    BACKWARD,
    CLIP,
    COLLECT,
    EMBEDDING,
    FORWARD,
    GATHER,
    NORM,
    OPERATIONS,
    OPTIMIZER,
    SCATTER,
    TRANSFERS,
    Operations,
    arrange,
    check_places,
    keep_whole_steps,
)
from foretrace.graph.operation_timeline.replica_shards import find_shards
from foretrace.graph.state import Grid, JobState
from foretrace.tracer.readers.operation_timeline import SHAPE
from foretrace.util.schema import table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foretrace.graph.operation_timeline.operations import Places
    from foretrace.tracer.trace import Trace

    Ints = NDArray[np.int64]

USUAL = 0.25
"""Quantile of the recorded delays that counts as the host's own: whatever else a start waited for
and the timeline does not show only adds to it. A choice, not fitted: the median gives the same
steps to 0.05 % on both public jobs, and 0.7 s of one stage's waiting as work."""


class _Meetings(NamedTuple):
    """Who communicates together: members' rows and the number of each one's meeting."""

    members: Ints
    of: Ints

    def __len__(self) -> int:
        return int(self.of.max(initial=-1)) + 1


def build_operation_graph(trace: Trace, rules: Rules) -> Graph:
    """Build the graph of all whole steps of *trace*.

    ``rules.kernel_gap`` adds the host's delay before an operation, estimated per kind of operation;
    without it the replay shows what the recorded durations alone would take.

    Raises
    ------
    GraphError
        An operation is unknown, or the stages' operations do not match one another.
    """
    replicas, stages = (int(trace.meta.extra[SHAPE][name]) for name in ("dp", "pp"))
    operations, left_out = keep_whole_steps(trace)
    at = arrange(operations, replicas, stages)
    check_places(at, trace.meta.source)
    met = _find_meetings(at, operations)
    unit = np.arange(len(operations.name))
    unit[met.members] = len(unit) + met.of
    tasks = _span_tasks(operations, unit, len(met))
    edges = _lead_to_meetings(_find_dependencies(operations, at), unit, met, tasks)
    lag_ns = np.zeros(len(edges.src), np.int64)
    if rules.kernel_gap:
        lag_ns = _estimate_host_delays(
            edges, tasks, _number_alike(operations, unit, stages, len(met))
        )
    lengths = (tasks.end - tasks.start)[tasks.marks]
    notes = [f"{len(lengths)} sampled steps: each begins for all ranks at once"]
    if left_out:
        notes.append(f"{left_out} steps have lost operations and are left out")
    return Graph(
        tasks=make_task_table(operations, tasks, len(met)),
        edges=make_edge_table(edges, lag_ns, int(tasks.marks[0])),
        lanes=make_lane_table(operations),
        operators=table(OPERATOR_COLUMNS, {}, 0),
        meta=trace.meta,
        steps=len(lengths),
        measured_step_ns=float(lengths.mean()),
        step_samples_ns=tuple(lengths.tolist()),
        rules=rules,
        notes=tuple(notes),
        state=JobState(steps_from="the step of each operation", grid=Grid(replicas, stages)),
    )


def _find_dependencies(operations: Operations, at: Places) -> Edges:
    """Return what each operation of a rank waits for on its own rank (rules 1 to 3)."""
    names = list(OPERATIONS)
    computes = [names.index(name) for name in (FORWARD, BACKWARD, COLLECT)]
    rows = np.flatnonzero(np.isin(operations.name, computes))
    shape = at[FORWARD].shape[:3]
    lane = operations.step * (shape[1] * shape[2]) + operations.rank
    follows = lane[rows[1:]] == lane[rows[:-1]]
    first, last = np.empty(shape, np.int64), np.empty(shape, np.int64)
    first.ravel()[lane[rows[::-1]]] = rows[::-1]
    last.ravel()[lane[rows]] = rows
    parts = [(rows[:-1][follows], rows[1:][follows], "stream")]
    parts += [(here, first, "event") for here in np.moveaxis(at[GATHER], 3, 0)]
    for direction in ("forward", "backward"):
        compute, send, receive = (at[f"{direction}-{w}"] for w in ("compute", "send", "recv"))
        if send.shape[3]:
            parts.append((compute, send, "event"))
        if receive.shape[3]:
            parts.append((receive, compute, "event"))
            parts.append((compute[..., :-1], receive[..., 1:], "event"))
    before = last
    for name in (NORM, EMBEDDING, SCATTER, CLIP, OPTIMIZER):
        for here in np.moveaxis(at[name], 3, 0):
            parts.append((before, here, "event"))
            before = np.where(here >= 0, here, before)
    return _join_edges(parts)


def _join_edges(parts: list[tuple[Ints, Ints, str]]) -> Edges:
    """Join lists of edges; what lacks one of its ends is none."""
    src = np.concatenate([before.ravel() for before, _, _ in parts])
    dst = np.concatenate([after.ravel() for _, after, _ in parts])
    kind = np.repeat(
        [list(EDGE_KINDS).index(kind) for _, _, kind in parts], [part[0].size for part in parts]
    )
    real = (src >= 0) & (dst >= 0)
    return Edges(src[real], dst[real], kind[real])


def _find_meetings(at: Places, operations: Operations) -> _Meetings:
    """Find who communicates together: both ends of a transfer, and the groups of rule 3."""
    groups = [np.moveaxis(at[EMBEDDING], 2, -1).reshape(-1, at[EMBEDDING].shape[2])]
    for name in (GATHER, SCATTER):
        for shard in find_shards(at[name], operations.start, operations.duration):
            members = np.moveaxis(at[name][:, shard], 1, -1)
            groups.append(members.reshape(-1, len(shard)))
    everybody = np.moveaxis(at[CLIP], 3, 1)
    groups.append(everybody.reshape(-1, everybody.shape[2] * everybody.shape[3]))
    for direction, here, onward in (
        ("forward", slice(None, -1), slice(1, None)),
        ("backward", slice(1, None), slice(None, -1)),
    ):
        send, receive = (at[f"{direction}-{what}"] for what in ("send", "recv"))
        if send.shape[3] and receive.shape[3]:
            both = np.stack([send[:, :, here], receive[:, :, onward]], axis=-1)
            groups.append(both.reshape(-1, 2))
    sizes = np.cumsum([0, *map(len, groups)])
    numbers = [
        np.repeat(np.arange(begin, begin + len(group)), group.shape[1])
        for begin, group in zip(sizes[:-1].tolist(), groups, strict=True)
    ]
    members, number = np.concatenate([g.ravel() for g in groups]), np.concatenate(numbers)
    present = members >= 0
    present &= np.bincount(number[present], minlength=int(sizes[-1]))[number] > 1
    return _Meetings(members[present], np.unique(number[present], return_inverse=True)[1])


def _span_tasks(operations: Operations, unit: Ints, meetings: int) -> Tasks:
    """Return when each task was recorded; a meeting is where the last of its members began."""
    count, steps = len(unit), int(operations.step.max()) + 1
    marks = count + meetings + np.arange(steps)
    start = np.zeros(count + meetings + steps, np.int64)
    step = np.zeros_like(start)
    for own, of in ((operations.start, start), (operations.step, step)):
        np.maximum.at(of, unit, own)
        of[:count] = own
    step[marks] = np.arange(steps)
    start[marks] = np.iinfo(np.int64).max
    np.minimum.at(start, marks[operations.step], operations.start)
    end = start.copy()
    end[:count] += operations.duration
    np.maximum.at(end, marks[operations.step], end[:count])
    return Tasks(step, start, end, marks)


def _lead_to_meetings(depends: Edges, unit: Ints, met: _Meetings, tasks: Tasks) -> Edges:
    """Let dependencies lead to meetings, meetings to their members, and steps to one another."""
    depends = depends._replace(dst=unit[depends.dst])
    free, last = (np.ones(len(tasks.step), bool) for _ in range(2))
    free[tasks.marks] = last[tasks.marks] = False
    free[depends.dst] = free[met.members] = False
    last[depends.src] = last[unit[met.members]] = False
    begins, ends = np.flatnonzero(free), np.flatnonzero(last)
    together = _join_edges(
        [
            (unit[met.members], met.members, "collective"),
            (tasks.marks[tasks.step[begins]], begins, "event"),
            (ends, np.roll(tasks.marks, -1)[tasks.step[ends]], "event"),
        ]
    )
    return Edges(*(np.concatenate(pair) for pair in zip(depends, together, strict=True)))


def _number_alike(operations: Operations, unit: Ints, stages: int, meetings: int) -> Ints:
    """Return a number per kind, "of the first stage" and "first in its step"; meetings have theirs.

    −1 are transfers between two ranks: what goes before their start is waiting for the other one.
    """
    between = np.isin(operations.name, [list(OPERATIONS).index(name) for name in TRANSFERS])
    own = operations.name * 4 + (operations.rank % stages == 0) * 2 + (operations.place == 0)
    own = np.where(between, -1, own)
    number = np.concatenate([own, np.zeros(meetings, np.int64)])
    number[unit[::-1]] = own[::-1]
    return number


def _estimate_host_delays(edges: Edges, tasks: Tasks, alike: Ints) -> Ints:
    """Return the lag of each edge: the usual time from "all is there" to a start, for those alike.

    It is the host's: data loading, which only the first stage does, and launches, which such a
    timeline does not show.
    """
    lag = np.zeros(len(edges.src), np.int64)
    count = len(alike)
    waits = (edges.kind != list(EDGE_KINDS).index("collective")) & (edges.dst < count)
    waits[waits] = alike[edges.dst[waits]] >= 0
    src, dst = edges.src[waits], edges.dst[waits]
    ready = np.zeros(count, np.int64)
    np.maximum.at(ready, dst, np.where(src < count, tasks.end[src], tasks.start[src]))
    awaited = np.unique(dst)
    delay = pd.Series(np.maximum(tasks.start[awaited] - ready[awaited], 0))
    usual = delay.groupby(alike[awaited]).quantile(USUAL)
    lag[waits] = np.rint(usual.reindex(alike[dst]).to_numpy())
    return lag
