"""The tasks that DDP adds to a graph: their names, where they stand, what they wait for.

In: a graph and rows of tasks. Out: rows, or the graph with more edges.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from foretrace.transforms.collectives.all_reduces import PREFIX
from foretrace.transforms.distributed.common.transfers import after, wait
from foretrace.transforms.edit.columns import Mask, Rows, is_in
from foretrace.transforms.edit.primitives import chain, edge_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foretrace.graph.model import Graph

TRANSFER = f"{PREFIX}all_reduce"
COPY_IN = f"{PREFIX}copy to bucket"
COPY_OUT = f"{PREFIX}copy from bucket"
COMPRESS = f"{PREFIX}compress"
DECOMPRESS = f"{PREFIX}decompress"
BROADCAST = f"{PREFIX}broadcast buffers"


def first_forward(graph: Graph, where: Rows) -> Rows:
    """Return the first task of each step's first forward pass among the selected ones."""
    rows = where[is_in(graph.tasks["phase"], "forward")[where]]
    start, step = (graph.tasks[c].to_numpy()[rows] for c in ("start_ns", "step"))
    rows = rows[np.lexsort((rows, start, step))]
    _, first = np.unique(graph.tasks["step"].to_numpy()[rows], return_index=True)
    return rows[first]


def late_edges(graph: Graph, ready: Rows, transfers: Rows, late_ns: int, lag_ns: int = 0) -> Graph:
    """Let each of *transfers* wait for the slowest worker, which has *ready* done later than this.

    At the end of a step that one is *late_ns* behind; lateness grows evenly over a step and is gone
    at its end, where all have waited for all. *lag_ns* comes on top.
    """
    start, step = (graph.tasks[c].to_numpy().astype(np.float64) for c in ("start_ns", "step"))
    late = np.zeros(len(ready))
    for one in np.unique(step[ready]).tolist():
        inside = start[step == one]
        mine = step[ready] == one
        passed = (start[ready[mine]] - inside.min()) / max(np.ptp(inside), 1.0)
        late[mine] = late_ns * np.clip(passed, 0.0, 1.0)
    lags = lag_ns + np.rint(late).astype(np.int64)
    return replace(graph, edges=edge_rows(graph.edges, ready, transfers, "event", lags))


def wait_behind(graph: Graph, transfers: Rows, ends: Rows) -> Graph:
    """Let the task behind each of *ends* on its lane wait for the transfer beside it."""
    following, shift = after(graph, ends)
    return wait(graph, transfers, following, shift=shift)


def backward_ends(
    graph: Graph, where: Mask, rows: Rows, turns: Sequence[int] | None = None
) -> Rows:
    """Return, per task of *rows*, the last backward task among *where* of its lane and pass.

    *turns* has the pass of the step that each belongs to; without it a step has one.
    """
    tasks = graph.tasks
    lane, step, start = (tasks[c].to_numpy() for c in ("lane", "step", "start_ns"))
    until = _next_passes(graph, where, rows, turns)
    backward = np.flatnonzero(is_in(tasks["phase"], "backward") & where)
    backward = backward[np.lexsort((backward, start[backward]))]
    ends: dict[tuple[int, int, float], int] = {}
    for key in dict.fromkeys(zip(lane[rows].tolist(), step[rows].tolist(), until, strict=True)):
        here = (lane[backward] == key[0]) & (step[backward] == key[1]) & (start[backward] < key[2])
        ends[key] = int(backward[here][-1])
    each = zip(lane[rows].tolist(), step[rows].tolist(), until, strict=True)
    return np.array([ends[key] for key in each], np.int64)


def _next_passes(graph: Graph, where: Mask, rows: Rows, turns: Sequence[int] | None) -> list[float]:
    """Return when the forward work behind each of *rows* begins, in steps of several passes."""
    if turns is None or not any(turns):
        return [np.inf] * len(rows)
    start, step = (graph.tasks[c].to_numpy() for c in ("start_ns", "step"))
    forward = np.flatnonzero(is_in(graph.tasks["phase"], "forward") & where)
    until: list[float] = []
    for row in rows.tolist():
        begun = start[forward[step[forward] == step[row]]]
        later = begun[begun > start[row]]
        until.append(float(later.min()) if len(later) else np.inf)
    return until


def last_inserted(graph: Graph, rows: Rows, count: int) -> Rows:
    """Return the last of the tasks that stand directly behind each of *rows* and are new.

    New tasks are those from row *count* on.
    """
    outgoing, dst = chain(graph)[1], graph.edges["dst"].to_numpy()
    last = rows.copy()
    while True:
        edge = outgoing[last]
        following = np.where(edge >= 0, dst[edge], -1)
        if not (new := following >= count).any():
            return last
        last[new] = following[new]
