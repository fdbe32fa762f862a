"""Several ranks as one graph: they meet at their collectives.

In: one graph per rank, on one clock. Out: one graph in which the wait for peers is separated from
the transfer: the last rank to arrive shows how long the transfer takes.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from pandas.api.types import union_categoricals

from foretrace.graph.model import EDGE_COLUMNS, LANE_COLUMNS, TASK_COLUMNS, Graph
from foretrace.schema import table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]


def merge_ranks(graphs: Sequence[Graph]) -> Graph:
    """Join the graphs of several ranks.

    The n-th collective of every rank is one meeting; ranks that disagree on how many there are
    meet at the common ones, and a note says so.
    """
    tasks = _concat([g.tasks for g in graphs])
    row = np.cumsum([0, *(len(g.tasks) for g in graphs)])
    lane = np.cumsum([0, *(len(g.lanes) for g in graphs)])
    operator = np.cumsum([0, *(len(g.operators) for g in graphs)])
    part = np.repeat(np.arange(len(graphs)), np.diff(row))
    tasks["lane"] = (tasks["lane"].to_numpy() + lane[part]).astype(np.int32)
    for column, offset in (("operator", operator), ("wait_lane", lane)):
        value = tasks[column].to_numpy()
        tasks[column] = np.where(value >= 0, value + offset[part], -1).astype(np.int32)
    edges = _concat([g.edges for g in graphs])
    part = np.repeat(np.arange(len(graphs)), [len(g.edges) for g in graphs])
    for column in ("src", "dst"):
        edges[column] = (edges[column].to_numpy() + row[part]).astype(np.int32)
    merged = replace(
        graphs[0],
        tasks=tasks,
        edges=edges,
        lanes=_concat([g.lanes for g in graphs]),
        operators=_concat([g.operators for g in graphs]),
        measured_step_ns=float(max(g.measured_step_ns for g in graphs)),
        notes=tuple(dict.fromkeys(note for g in graphs for note in g.notes)),
    )
    return _meet(merged, row)


def _concat(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    columns: dict[str, Any] = {}
    for name in frames[0]:
        parts = [f[name] for f in frames]
        if isinstance(parts[0].dtype, pd.CategoricalDtype):
            columns[name] = union_categoricals(parts)
        else:
            columns[name] = np.concatenate([p.to_numpy() for p in parts])
    return pd.DataFrame(columns, copy=False)


def _meet(graph: Graph, row: Ints) -> Graph:
    """Tie the ranks together: nobody's transfer starts before everybody has arrived."""
    tasks = graph.tasks
    kind = tasks["kind"].to_numpy(dtype=str)
    per_rank = []
    for begin, end in pairwise(row.tolist()):
        mine = begin + np.flatnonzero(kind[begin:end] == "collective")
        per_rank.append(mine[np.argsort(tasks["start_ns"].to_numpy()[mine], kind="stable")])
    meetings = min(len(mine) for mine in per_rank)
    if not meetings:
        return graph
    met = np.stack([mine[:meetings] for mine in per_rank])
    start = tasks["start_ns"].to_numpy()[met]
    end = start + tasks["duration_ns"].to_numpy()[met]
    transfer = np.clip(np.median(end, axis=0) - start.max(axis=0), 0, None).astype(np.int64)
    work = tasks["work_ns"].to_numpy().copy()
    work[met] = np.minimum(work[met], transfer)
    notes = list(graph.notes)
    if any(len(mine) != meetings for mine in per_rank):
        notes.append(
            f"ranks recorded different numbers of collectives; the first {meetings} are matched"
        )
    share = 1 - transfer.sum() * len(per_rank) / max(tasks["duration_ns"].to_numpy()[met].sum(), 1)
    notes.append(f"{share:.0%} of the ranks' collective time is waiting for the last to arrive")
    merged = replace(graph, tasks=tasks.assign(work_ns=work), notes=tuple(notes))
    return _rendezvous(merged, met, start)


def _rendezvous(graph: Graph, met: Ints, start: Ints) -> Graph:
    """Insert an arrival before each rank's collective, and a meeting point; both of length 0."""
    ranks, meetings = met.shape
    rows = len(graph.tasks)
    arrival = rows + np.arange(ranks * meetings).reshape(ranks, meetings)
    hub = rows + ranks * meetings + np.arange(meetings)
    link = len(graph.lanes)
    lane = graph.tasks["lane"].to_numpy()
    added = ranks * meetings + meetings
    step = graph.tasks["step"].to_numpy()
    new = table(
        TASK_COLUMNS,
        {
            "name": ["arrival"] * (ranks * meetings) + ["meeting"] * meetings,
            "kind": ["collective"] * added,
            "lane": np.concatenate([lane[met].ravel(), np.full(meetings, link)]),
            "start_ns": np.concatenate([start.ravel(), start.max(axis=0)]),
            "duration_ns": np.zeros(added),
            "work_ns": np.zeros(added),
            "step": np.concatenate([step[met].ravel(), step[met[0]]]),
            "phase": ["communication"] * added,
            "wait": ["none"] * added,
            "return_ns": np.zeros(added),
            "lock": np.zeros(added),
            "cost": ["recorded"] * added,
        },
        added,
    )
    edges = graph.edges.copy()
    moved = np.arange(rows + added)
    moved[met.ravel()] = arrival.ravel()
    into = edges["kind"].isin(["stream", "launch", "event"]).to_numpy()
    edges["dst"] = np.where(into, moved[edges["dst"].to_numpy()], edges["dst"].to_numpy()).astype(
        np.int32
    )
    everyone = np.broadcast_to(hub, (ranks, meetings)).ravel()
    src = np.concatenate([arrival.ravel(), arrival.ravel(), everyone, hub[:-1]])
    dst = np.concatenate([met.ravel(), everyone, met.ravel(), hub[1:]])
    kinds = ["stream", "collective", "collective"]
    kind = np.concatenate([np.repeat(kinds, ranks * meetings), np.repeat("thread", meetings - 1)])
    extra = table(
        EDGE_COLUMNS,
        {
            "src": src,
            "dst": dst,
            "lag_ns": np.zeros(len(src)),
            "shift": np.zeros(len(src)),
            "kind": kind,
            "rule": ["meeting"] * len(src),
        },
        len(src),
    )
    lanes = table(
        LANE_COLUMNS,
        {"kind": ["link"], "rank": [0], "device": [-1], "id": [0], "role": ["communication"]},
        1,
    )
    return replace(
        graph,
        tasks=_concat([graph.tasks, new]),
        edges=_concat([edges, extra]),
        lanes=_concat([graph.lanes, lanes]),
    )
