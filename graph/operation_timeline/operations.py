"""The operations of an operation-level timeline, and which of them belong together.

In: a trace of `readers.operation_timeline`. Out: one row per operation of the whole steps, and
their rows by kind, step, replica (data-parallel rank), stage and place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foretrace.errors import GraphError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foretrace.tracer.trace import Trace

    Ints = NDArray[np.int64]
    Places = dict[str, Ints]

FORWARD, BACKWARD, COLLECT = "forward-compute", "backward-compute", "gc"
GATHER, SCATTER = "params-all-gather", "grads-reduce-scatter"
NORM, EMBEDDING = "layernorm-grads-all-reduce", "embedding-grads-all-reduce"
CLIP, OPTIMIZER = "optimizer-clip-main-grad", "optimizer"
TRANSFERS = ("forward-send", "forward-recv", "backward-send", "backward-recv")
OPERATIONS = {
    FORWARD: ("kernel", "forward"),
    BACKWARD: ("kernel", "backward"),
    COLLECT: ("kernel", "other"),
    OPTIMIZER: ("kernel", "optimizer"),
    CLIP: ("collective", "optimizer"),
    **dict.fromkeys((GATHER, SCATTER, NORM, EMBEDDING), ("collective", "communication")),
    **dict.fromkeys(TRANSFERS, ("p2p", "communication")),
}
"""Kind and phase of each operation."""


MOST_CELLS, MOST_SPARSE = 1_000_000, 100
"""Cells of a grid over steps, ranks and places that are always allowed, and per operation."""


class Operations(NamedTuple):
    """One row per operation, by (step, rank, start). Times in ns, as recorded."""

    name: Ints  # place in OPERATIONS
    step: Ints  # from 0
    rank: Ints
    stream: Ints
    place: Ints  # among its kind in the step and rank
    start: Ints
    duration: Ints

    def pick(self, rows: Ints | NDArray[np.bool_]) -> Operations:
        """Return some rows."""
        return Operations(*(column[rows] for column in self))


def keep_whole_steps(trace: Trace) -> tuple[Operations, int]:
    """Return the operations of whole steps, and how many other steps are left out.

    A step is whole if it has as many operations of each kind and rank as most steps.

    Raises
    ------
    GraphError
        There is no operation, or an unknown one.
    """
    operations = _read_operations(trace)
    if not len(operations.name):
        raise GraphError(f"{trace.meta.source}: the timeline holds no operation to replay")
    _refuse_sparse(trace, operations)
    width = (int(operations.rank.max()) + 1) * len(OPERATIONS)
    key = operations.step * width + operations.rank * len(OPERATIONS) + operations.name
    count = np.bincount(key, minlength=(int(operations.step.max()) + 1) * width).reshape(-1, width)
    shapes, of, often = np.unique(count, axis=0, return_inverse=True, return_counts=True)
    whole = of.ravel() == np.lexsort((shapes.sum(axis=1), often))[-1]
    operations = operations.pick(whole[operations.step])
    if not len(operations.name):
        raise GraphError(f"{trace.meta.source}: most steps hold no operation to replay")
    number = np.cumsum(whole) - 1
    return operations._replace(step=number[operations.step]), int((~whole).sum())


def _refuse_sparse(trace: Trace, operations: Operations) -> None:
    """Refuse numbers of ranks and places that would lay few operations out over a huge grid."""
    steps, ranks, places = (
        int(column.max()) + 1 for column in (operations.step, operations.rank, operations.place)
    )
    if operations.place.min() < 0 or operations.rank.max() > max(trace.meta.ranks):
        raise GraphError(f"{trace.meta.source}: an operation has no place in its rank and step")
    if steps * ranks * places > MOST_CELLS + MOST_SPARSE * len(operations.name):
        raise GraphError(
            f"{trace.meta.source}: {len(operations.name):,} operations are too few for {steps:,} "
            f"steps of {ranks:,} ranks with {places:,} places each"
        )


def _read_operations(trace: Trace) -> Operations:
    """Return the operations; each is of the step whose annotation it begins in."""
    events = trace.events
    is_mark = (events["kind"] == "annotation").to_numpy()
    codes = {name: code for code, name in enumerate(OPERATIONS)}
    names = events["name"].cat
    of_name = np.array([codes.get(str(name), -1) for name in names.categories], np.int64)
    name = np.where(is_mark, 0, of_name[names.codes.to_numpy()])
    if (name < 0).any():
        strange = events["name"].iloc[int(np.flatnonzero(name < 0)[0])]
        raise GraphError(
            f"{trace.meta.source}: the operation {strange!r} is unknown; "
            f"known are {', '.join(OPERATIONS)}"
        )
    columns = ("rank", "stream", "sequence", "start_ns", "duration_ns")
    rank, stream, place, start, duration = (events[c].to_numpy().astype(np.int64) for c in columns)
    mark = np.maximum.accumulate(np.where(is_mark, np.arange(len(rank)), 0))
    step = np.unique(place[mark], return_inverse=True)[1]
    every = Operations(name, step, rank, stream, place, start, duration)
    rows = np.flatnonzero(~is_mark)
    return every.pick(rows[np.lexsort((place[rows], start[rows], rank[rows], step[rows]))])


def arrange(operations: Operations, replicas: int, stages: int) -> Places:
    """Return the rows of each kind of operation: [step, replica, stage, place]; −1 for none."""
    steps = int(operations.step.max()) + 1
    result: Places = {}
    for code, name in enumerate(OPERATIONS):
        rows = np.flatnonzero(operations.name == code)
        size = int(operations.place[rows].max(initial=-1)) + 1
        at = np.full((steps, replicas * stages, size), -1, np.int64)
        at[operations.step[rows], operations.rank[rows], operations.place[rows]] = rows
        result[name] = at.reshape(steps, replicas, stages, size)
    return result


def check_places(at: Places, source: str) -> None:
    """Raise `GraphError` unless every micro-batch is computed and handed on by every stage."""
    batches = at[FORWARD].shape[3]
    if not batches:
        raise GraphError(f"{source}: the timeline holds no {FORWARD}, there is nothing to replay")
    ends = {"forward-send": -1, "backward-recv": -1, "forward-recv": 0, "backward-send": 0}
    for name in (FORWARD, BACKWARD, *TRANSFERS):
        count = (at[name] >= 0).sum(axis=3).min(axis=(0, 1))
        expected = np.full(len(count), batches)
        if name in ends:
            expected[ends[name]] = count[ends[name]]
        wrong = np.flatnonzero(count != expected)
        if len(wrong):
            stage = int(wrong[0])
            raise GraphError(
                f"{source}: stage {stage} has {count[stage]} {name} for {batches} micro-batches"
            )
