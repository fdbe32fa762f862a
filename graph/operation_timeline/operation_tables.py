"""The tables of the graph of an operation-level timeline: operations, meetings, steps.

In: the operations, when each task was recorded, and the edges. Out: tasks, lanes and edges.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from foretrace.graph.model import (
    EDGE_COLUMNS,
    EDGE_KINDS,
    LANE_COLUMNS,
    PHASES,
    TASK_COLUMNS,
    TASK_KINDS,
)
from foretrace.graph.operation_timeline.operations import OPERATIONS, Operations
from foretrace.util.schema import table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

MEETING, STEP = "meeting", "step"
"""Names of the tasks without work at which peers, and all ranks, begin together."""


class Tasks(NamedTuple):
    """Operations, then meetings, then one per step: when they were recorded, in ns."""

    step: Ints
    start: Ints
    end: Ints
    marks: Ints  # rows of the steps' tasks


class Edges(NamedTuple):
    """Edges between tasks; rows of the two ends."""

    src: Ints
    dst: Ints
    kind: Ints  # place in EDGE_KINDS


def make_task_table(operations: Operations, tasks: Tasks, meetings: int) -> pd.DataFrame:
    """Return the task table: operations, *meetings*, steps."""
    names = [*OPERATIONS, MEETING, STEP]
    kinds, phases = zip(*OPERATIONS.values(), ("collective", "communication"), strict=True)
    kind = np.array([TASK_KINDS.index(each) for each in (*kinds, "collective")])
    phase = np.array([*map(PHASES.index, phases), -1])
    steps = len(tasks.marks)
    added = np.repeat([len(names) - 2, len(names) - 1], [meetings, steps])
    name = np.concatenate([operations.name, added])
    lane = _number_lanes(operations)
    links = int(lane.max()) + 1
    rows = len(name)
    duration = np.concatenate([operations.duration, np.zeros(len(added), np.int64)])
    same = np.zeros(rows, np.int8)
    return table(
        TASK_COLUMNS,
        {
            "name": pd.Categorical.from_codes(name, names),
            "kind": pd.Categorical.from_codes(kind[name], list(TASK_KINDS)),
            "lane": np.concatenate([lane, np.repeat([links, links + 1], [meetings, steps])]),
            "start_ns": tasks.start,
            "duration_ns": duration,
            "work_ns": duration,
            "step": tasks.step,
            "phase": pd.Categorical.from_codes(phase[name], list(PHASES)),
            "wait": pd.Categorical.from_codes(same, ["none"]),
            "return_ns": same,
            "cost": pd.Categorical.from_codes(same, ["recorded"]),
        },
        rows,
    )


def _number_lanes(operations: Operations) -> Ints:
    """Return a number per stream of the ranks that has operations."""
    key = operations.rank * (int(operations.stream.max()) + 1) + operations.stream
    lane: Ints = np.unique(key, return_inverse=True)[1]
    return lane


def make_lane_table(operations: Operations) -> pd.DataFrame:
    """Return the lanes: each rank's streams, one for meetings, one for the steps."""
    _, first = np.unique(_number_lanes(operations), return_index=True)
    streams = len(first)
    roles = np.where(operations.stream[first] == 0, "compute", "communication")
    return table(
        LANE_COLUMNS,
        {
            "kind": ["stream"] * streams + ["link"] * 2,
            "rank": np.append(operations.rank[first], [0, 0]),
            "device": np.append(np.zeros(streams), [-1, -1]),
            "id": np.append(operations.stream[first], [0, 1]),
            "role": [*roles.tolist(), "communication", "other"],
        },
        streams + 2,
    )


def make_edge_table(edges: Edges, lag_ns: Ints, first_mark: int) -> pd.DataFrame:
    """Return the edge table; what ends the last step begins the first of the next repetition."""
    return table(
        EDGE_COLUMNS,
        {
            "src": edges.src,
            "dst": edges.dst,
            "kind": pd.Categorical.from_codes(edges.kind, list(EDGE_KINDS)),
            "lag_ns": lag_ns,
            "shift": edges.dst == first_mark,
            "rule": pd.Categorical.from_codes(np.zeros(len(lag_ns), np.int8), ["timeline"]),
        },
        len(lag_ns),
    )
