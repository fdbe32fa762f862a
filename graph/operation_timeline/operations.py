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


class Operations(NamedTuple):
    """One row per operation, by (step, rank, start). Times in ns, as recorded."""

    name: Ints  # place in OPERATIONS
    step: Ints  # from 0
    rank: Ints
    stream: Ints
    place: Ints  # among its kind in the step and rank
    start: Ints
    duration: Ints

    def picked(self, rows: Ints | NDArray[np.bool_]) -> Operations:
        """Return some rows."""
        return Operations(*(column[rows] for column in self))


def whole_steps(trace: Trace) -> tuple[Operations, int]:
    """Return the operations of whole steps, and how many other steps are left out.

    A step is whole if it has as many operations of each kind and rank as most steps.

    Raises
    ------
    GraphError
        There is no operation, or an unknown one.
    """
    found = _operations(trace)
    if not len(found.name):
        raise GraphError(f"{trace.meta.source}: the timeline holds no operation to replay")
    width = (int(found.rank.max()) + 1) * len(OPERATIONS)
    key = found.step * width + found.rank * len(OPERATIONS) + found.name
    count = np.bincount(key, minlength=(int(found.step.max()) + 1) * width).reshape(-1, width)
    shapes, of, often = np.unique(count, axis=0, return_inverse=True, return_counts=True)
    whole = of.ravel() == np.lexsort((shapes.sum(axis=1), often))[-1]
    found = found.picked(whole[found.step])
    number = np.cumsum(whole) - 1
    return found._replace(step=number[found.step]), int((~whole).sum())


def _operations(trace: Trace) -> Operations:
    """Return the operations; each is of the step whose annotation it begins in."""
    events = trace.events
    is_mark = (events["kind"] == "annotation").to_numpy()
    known = {name: code for code, name in enumerate(OPERATIONS)}
    names = events["name"].cat
    of_name = np.array([known.get(str(name), -1) for name in names.categories], np.int64)
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
    return every.picked(rows[np.lexsort((place[rows], start[rows], rank[rows], step[rows]))])


def places(found: Operations, replicas: int, stages: int) -> Places:
    """Return the rows of each kind of operation: [step, replica, stage, place]; −1 for none."""
    steps = int(found.step.max()) + 1
    result: Places = {}
    for code, name in enumerate(OPERATIONS):
        rows = np.flatnonzero(found.name == code)
        size = int(found.place[rows].max(initial=-1)) + 1
        at = np.full((steps, replicas * stages, size), -1, np.int64)
        at[found.step[rows], found.rank[rows], found.place[rows]] = rows
        result[name] = at.reshape(steps, replicas, stages, size)
    return result


def check_places(found: Places, source: str) -> None:
    """Raise `GraphError` unless every micro-batch is computed and handed on by every stage."""
    batches = found[FORWARD].shape[3]
    if not batches:
        raise GraphError(f"{source}: the timeline holds no {FORWARD}, there is nothing to replay")
    ends = {"forward-send": -1, "backward-recv": -1, "forward-recv": 0, "backward-send": 0}
    for name in (FORWARD, BACKWARD, *TRANSFERS):
        count = (found[name] >= 0).sum(axis=3).min(axis=(0, 1))
        expected = np.full(len(count), batches)
        if name in ends:
            expected[ends[name]] = count[ends[name]]
        wrong = np.flatnonzero(count != expected)
        if len(wrong):
            stage = int(wrong[0])
            raise GraphError(
                f"{source}: stage {stage} has {count[stage]} {name} for {batches} micro-batches"
            )
