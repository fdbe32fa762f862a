"""Where gradients stand in a graph: the last kernel launched so far, tasks spread over a step.

In: a graph and host tasks or masks. Out: rows of tasks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from foretrace.errors import TransformError
from foretrace.transforms.edit.columns import Mask, Rows, is_in

if TYPE_CHECKING:
    from foretrace.graph.model import Graph


def last_launched(graph: Graph, hosts: Rows) -> Rows:
    """Return, per host task, the last device task on a compute stream launched up to its start.

    Only the threads of *hosts* count: a loader may launch kernels of its own.

    Raises
    ------
    TransformError
        The trace tells of no launch.
    """
    tasks, edges = graph.tasks, graph.edges
    launch = np.flatnonzero(is_in(edges["kind"], "launch"))
    call, task = (edges[end].to_numpy().astype(np.int64)[launch] for end in ("src", "dst"))
    lane = tasks["lane"].to_numpy()
    ours = is_in(graph.lanes["role"], "compute")[lane[task]] & np.isin(lane[call], lane[hosts])
    call, task = call[ours], task[ours]
    if not len(task):
        raise TransformError("no launch of this trace is known: gradients cannot be placed in it")
    start = tasks["start_ns"].to_numpy()
    order = np.lexsort((task, call, start[call]))
    at = np.searchsorted(start[call[order]], start[hosts], side="right") - 1
    last: Rows = task[order][np.maximum(at, 0)]
    return last


def per_step(graph: Graph, where: Mask) -> list[tuple[int, Rows]]:
    """Return the selected tasks of each step, in order of start."""
    rows = np.flatnonzero(where)
    rows = rows[np.lexsort((rows, graph.tasks["start_ns"].to_numpy()[rows]))]
    step = graph.tasks["step"].to_numpy()[rows]
    return [(one, rows[step == one]) for one in np.unique(step[step >= 0]).tolist()]


def evenly(rows: Rows, count: int) -> Rows:
    """Return *count* of *rows*, evenly spaced, the last one last.

    Examples
    --------
    >>> evenly(np.arange(10), 5).tolist()
    [1, 3, 5, 7, 9]
    """
    return rows[np.maximum(-(-np.arange(1, count + 1) * len(rows) // count) - 1, 0)]
