"""Put new work on a stream of its own: a lane, its tasks in order, and the calls that launch them.

In: a graph. Out: a new one whose last rows are the new tasks. What they wait for and what waits for
them is said with `add_waits`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from foretrace.transforms.edit.columns import NO_KERNEL, Rows, append
from foretrace.transforms.edit.primitives import edge_rows, insert

if TYPE_CHECKING:
    from foretrace.graph.model import Graph


def add_stream(graph: Graph, like: int, role: str) -> tuple[Graph, int]:
    """Return *graph* with one more stream on the device of the lane *like*, and its row."""
    same = append(graph.lanes, np.array([like]), {"id": graph.lanes["id"].max() + 1, "role": role})
    return replace(graph, lanes=same), len(graph.lanes)


def run_aside(
    graph: Graph, lane: int, calls: Rows, like: Rows, *, call: str, **columns: Any
) -> tuple[Graph, Rows]:
    """Run one new task per entry of *like* on *lane*, in that order, each launched by a new call.

    Parameters
    ----------
    graph
        The job.
    lane
        A stream with no tasks yet.
    calls
        Host tasks after which the new calls stand.
    like
        Tasks whose step, phase and module the new ones take.
    call
        Name of the new calls.
    **columns
        Task columns of the new tasks: ``name``, ``kind``, ``work_ns`` and ``cost`` at least.

    Returns
    -------
    tuple
        The new graph and the rows of the new tasks.

    Examples
    --------
    >>> from foretrace.graph.literal import literal
    >>> graph = literal(
    ...     [("launch", "launch", 0, 5, None), ("gemm", "kernel", 1, 9, None)], [(0, 1, "launch")]
    ... )
    >>> graph, lane = add_stream(graph, 1, "copy")
    >>> graph, rows = run_aside(
    ...     graph, lane, np.array([0]), np.array([1]), call="cudaMemcpyAsync",
    ...     name="Memcpy DtoH", kind="memcpy", work_ns=70, cost="prior",
    ... )
    >>> rows.tolist(), graph.tasks[["lane", "work_ns"]].values.tolist()[2:]
    ([2], [[2, 70], [0, 6000]])
    """
    count = len(graph.tasks)
    rows = count + np.arange(len(like), dtype=np.int64)
    unknown = {"duration_ns": 0, "operator": -1, **NO_KERNEL}
    quiet = {"wait": "none", "wait_lane": -1, "return_ns": 0, "lock": -1, "lane": lane}
    tasks = append(graph.tasks, like, {"bytes": np.nan, **unknown, **quiet, **columns})
    edges = edge_rows(graph.edges, rows[:-1], rows[1:], "stream", 0)
    edges = edge_rows(edges, rows[-1:], rows[:1], "stream", 0, 1)
    graph, launched = insert(
        replace(graph, tasks=tasks, edges=edges),
        calls,
        kind="launch",
        name=call,
        work_ns=graph.platform.launch_ns,
        cost="prior",
    )
    lag = graph.platform.launch_latency_ns
    return replace(graph, edges=edge_rows(graph.edges, launched, rows, "launch", lag)), rows


def add_waits(graph: Graph, src: Rows, dst: Rows) -> Graph:
    """Return *graph* in which each of *dst* waits for the end of *src*; −1 stands for nothing."""
    both = (src >= 0) & (dst >= 0)
    return replace(graph, edges=edge_rows(graph.edges, src[both], dst[both], "event", 0))
