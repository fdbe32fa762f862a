"""A graph in, the same with worker processes that make its batches out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from foretrace.transforms.edit.columns import append
from foretrace.transforms.edit.primitives import edge_rows
from foretrace.transforms.edit.select import rank_of_tasks

if TYPE_CHECKING:
    import pandas as pd

    from foretrace.graph.model import Graph
    from foretrace.transforms.edit.columns import Rows

LOAD = "load a batch in a worker (predicted)"
"""Name of the task that makes a batch."""


def add_workers(
    graph: Graph, consumers: Rows, batch_ns: float, workers: int, prefetch: int
) -> Graph:
    """Add one load per consumer, in *workers* processes of each rank, whose consumers are in order.

    Workers take turns, so that a batch comes every ``batch_ns / workers`` on average: that is what
    a load takes here, one after the other. In bursts, as they may come, a step would only repeat
    after as many as there are workers. A load may run ahead as far as they prefetch.
    """
    rank, pace_ns = rank_of_tasks(graph)[consumers], round(batch_ns / workers)
    for each in np.unique(rank):
        graph = _add_to_rank(graph, consumers[rank == each], pace_ns, workers * prefetch)
    return graph


def _add_to_rank(graph: Graph, consumers: Rows, pace_ns: int, ahead: int) -> Graph:
    """Add a load of *pace_ns* per step of one rank, at most so many batches *ahead*."""
    lane = len(graph.lanes)
    like = graph.tasks["lane"].to_numpy()[consumers[:1]].astype(np.int64)
    lanes = append(
        graph.lanes, like, {"kind": "loader", "role": "loader", "device": -1, "id": lane}
    )
    loads = len(graph.tasks) + np.arange(len(consumers))
    values = {
        "name": LOAD,
        "kind": "load",
        "lane": lane,
        "duration_ns": 0,
        "work_ns": pace_ns,
        "phase": "load",
        "operator": -1,
        "bytes": np.nan,
        "flops": np.nan,
        "wait": "none",
        "wait_lane": -1,
        "return_ns": 0,
        "lock": -1,
        "cost": "roofline",
    }
    tasks = append(graph.tasks, consumers, values)
    edges = edge_rows(graph.edges, loads, consumers, "data", 0)
    edges = _ahead(edges, loads, loads, 1, "thread")
    edges = _ahead(edges, consumers, loads, ahead, "data")
    return replace(graph, tasks=tasks, edges=edges, lanes=lanes)


def _ahead(edges: pd.DataFrame, src: Rows, dst: Rows, by: int, kind: str) -> pd.DataFrame:
    """Add edges from each step's *src* to the *dst* that lies *by* steps later."""
    later = np.arange(len(src)) + by
    return edge_rows(edges, src, dst[later % len(dst)], kind, 0, later // len(dst))
