"""Several ranks as one graph: they meet at their collectives.

In: one graph per rank, on one clock. Out: one graph in which the wait for peers is separated from
the transfer: the last rank to arrive shows how long the transfer takes.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from foretrace.errors import GraphError
from foretrace.graph.events import matching
from foretrace.graph.model import EDGE_COLUMNS, LANE_COLUMNS, TASK_COLUMNS, Graph
from foretrace.schema import table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

_ALL_TO_ALL = re.compile("all_?to_?all", re.IGNORECASE)


class _Meetings(NamedTuple):
    """The rows of the ranks' collectives, [rank, meeting], and what was seen of each meeting."""

    rows: Ints
    start_ns: Ints
    transfer_ns: Ints


def merge_ranks(graphs: Sequence[Graph]) -> Graph:
    """Join the graphs of several ranks.

    The n-th collective of every rank is one meeting; ranks that disagree on how many there are
    meet at the common ones, and a note says so.

    Raises
    ------
    GraphError
        The ranks recorded different numbers of steps: no period is common to them.
    """
    steps = [graph.steps for graph in graphs]
    if min(steps) < max(steps):
        raise GraphError(
            f"ranks: between {min(steps)} and {max(steps)} whole steps were recorded,"
            " record the same steps on every rank"
        )
    joined, first_row = _side_by_side(graphs)
    meets = _meets(joined)
    per_rank = [
        begin + np.flatnonzero(meets[begin:end]) for begin, end in pairwise(first_row.tolist())
    ]
    notes = list(joined.notes)
    if max(steps) == 1:
        began = [int(graph.tasks["start_ns"].min()) for graph in graphs]
        apart = (max(began) - min(began)) / 1e6
        notes.append(f"the ranks began their only step {apart:.1f} ms apart; replayed, together")
    met = _meetings(joined.tasks, per_rank)
    if met is None:
        return replace(joined, notes=tuple(notes))
    if any(len(rows) != met.rows.shape[1] for rows in per_rank):
        notes.append(
            "ranks recorded different numbers of collectives;"
            f" the first {met.rows.shape[1]} are matched"
        )
    spent = joined.tasks["duration_ns"].to_numpy()[met.rows].sum()
    share = 1 - met.transfer_ns.sum() * len(graphs) / max(spent, 1)
    notes.append(f"{share:.0%} of the ranks' collective time is waiting for the last to arrive")
    return _together(replace(joined, notes=tuple(notes)), met)


def _side_by_side(graphs: Sequence[Graph]) -> tuple[Graph, Ints]:
    """Put the tables of *graphs* one below the other; also return where each rank's tasks begin."""
    row, lane, operator = (
        np.cumsum([0, *(len(getattr(graph, name)) for graph in graphs)])
        for name in ("tasks", "lanes", "operators")
    )
    tasks = _concat([graph.tasks for graph in graphs])
    of_task = np.repeat(np.arange(len(graphs)), np.diff(row))
    for column, offset in (("lane", lane), ("operator", operator), ("wait_lane", lane)):
        tasks[column] = _shifted(tasks[column], offset[of_task])
    operators = _concat([graph.operators for graph in graphs])
    of_operator = np.repeat(operator[:-1], np.diff(operator))
    operators["parent"] = _shifted(operators["parent"], of_operator)
    edges = _concat([graph.edges for graph in graphs])
    of_edge = np.repeat(row[:-1], [len(graph.edges) for graph in graphs])
    for column in ("src", "dst"):
        edges[column] = _shifted(edges[column], of_edge)
    slowest = max(graphs, key=lambda graph: graph.measured_step_ns)
    depths = [graph.platform.queue_depth for graph in graphs]
    platform = replace(
        slowest.platform,
        queue_depth=None if None in depths else slowest.platform.queue_depth,
        locks=any(graph.platform.locks for graph in graphs),
    )
    joined = replace(
        slowest,
        tasks=tasks,
        edges=edges,
        lanes=_concat([graph.lanes for graph in graphs]),
        operators=operators,
        platform=platform,
        notes=tuple(dict.fromkeys(note for graph in graphs for note in graph.notes)),
    )
    return joined, row


def _shifted(rows: pd.Series, offset: Ints) -> NDArray[np.int32]:
    """Return row numbers moved by *offset*; −1 stays "none"."""
    value = rows.to_numpy()
    return np.where(value >= 0, value + offset, -1).astype(np.int32)


def _concat(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    columns: dict[str, Any] = {}
    for name in frames[0]:
        parts = [frame[name].array for frame in frames]
        if isinstance(parts[0].dtype, pd.CategoricalDtype):
            columns[name] = _categories_joined(parts)
        else:
            columns[name] = np.concatenate([part.to_numpy() for part in parts])
    return pd.DataFrame(columns, copy=False)


def _categories_joined(parts: Sequence[pd.Categorical]) -> pd.Categorical:
    """Join columns of strings; each category keeps the place of its first appearance."""
    known: dict[str, int] = {}
    for part in parts:
        for value in part.categories:
            known.setdefault(value, len(known))
    codes = [
        np.array([*(known[value] for value in part.categories), -1], np.int64)[part.codes]
        for part in parts
    ]
    return pd.Categorical.from_codes(np.concatenate(codes), list(known))


def _meets(graph: Graph) -> NDArray[np.bool_]:
    """Tell which tasks need every rank; an all-to-all runs as sends and receives."""
    names = graph.operators["name"]
    exchanges = np.append(matching(names, _ALL_TO_ALL), [False])
    parent = np.append(graph.operators["parent"].to_numpy(), [-1])
    operator = graph.tasks["operator"].to_numpy()
    found = (graph.tasks["kind"] == "collective").to_numpy().copy()
    p2p = (graph.tasks["kind"] == "p2p").to_numpy()
    while (operator >= 0).any():
        found |= p2p & exchanges[operator]
        operator = parent[operator]
    return found


def _meetings(tasks: pd.DataFrame, per_rank: Sequence[Ints]) -> _Meetings | None:
    """Match the collectives of the ranks in order of their start.

    Where all ranks have as many on each stream, the order is the stream's: collectives of two
    streams may overtake each other.
    """
    start, lane = tasks["start_ns"].to_numpy(), tasks["lane"].to_numpy()
    on_streams = [np.unique(lane[rows], return_counts=True)[1].tolist() for rows in per_rank]
    alike = all(counts == on_streams[0] for counts in on_streams)
    ordered = [
        rows[np.lexsort((start[rows], lane[rows] if alike else start[rows]))] for rows in per_rank
    ]
    count = min(len(rows) for rows in ordered)
    if not count:
        return None
    rows = np.stack([each[:count] for each in ordered])
    end = start[rows] + tasks["duration_ns"].to_numpy()[rows]
    transfer = np.median(end, axis=0) - start[rows].max(axis=0)
    return _Meetings(rows, start[rows], np.clip(transfer, 0, None).astype(np.int64))


def _together(graph: Graph, met: _Meetings) -> Graph:
    """Insert one task per meeting, the transfer: it begins when all ranks have begun to wait.

    A collective occupies its stream from its own arrival to the end of the transfer.
    """
    meetings = met.rows.shape[1]
    work = graph.tasks["work_ns"].to_numpy().copy()
    work[met.rows] = np.minimum(work[met.rows], met.transfer_ns)
    transfer = len(graph.tasks) + np.arange(meetings)
    streams, link = np.unique(graph.tasks["lane"].to_numpy()[met.rows[0]], return_inverse=True)
    tasks = table(
        TASK_COLUMNS,
        {
            "name": ["transfer"] * meetings,
            "kind": ["collective"] * meetings,
            "lane": len(graph.lanes) + link,
            "start_ns": met.start_ns.max(axis=0),
            "duration_ns": met.transfer_ns,
            "work_ns": met.transfer_ns,
            "step": graph.tasks["step"].to_numpy()[met.rows[0]],
            "phase": ["communication"] * meetings,
            "bytes": graph.tasks["bytes"].to_numpy()[met.rows[0]],
            "wait": ["none"] * meetings,
            "return_ns": np.zeros(meetings),
            "lock": np.zeros(meetings),
            "cost": ["recorded"] * meetings,
        },
        meetings,
    )
    lanes = table(
        LANE_COLUMNS,
        {
            "kind": ["link"] * len(streams),
            "rank": np.zeros(len(streams)),
            "device": np.full(len(streams), -1),
            "id": np.arange(len(streams)),
            "role": ["communication"] * len(streams),
        },
        len(streams),
    )
    return replace(
        graph,
        tasks=_concat([graph.tasks.assign(work_ns=work), tasks]),
        edges=_concat([graph.edges, _meeting_edges(met.rows, transfer, link)]),
        lanes=_concat([graph.lanes, lanes]),
    )


def _meeting_edges(rows: Ints, transfer: Ints, link: Ints) -> pd.DataFrame:
    """Tie each transfer to the start and the end of every rank's collective, and to the next."""
    everyone = np.broadcast_to(transfer, rows.shape).ravel()
    order = [transfer[link == each] for each in np.unique(link)]
    before, after = (np.concatenate([np.roll(one, k) for one in order]) for k in (0, -1))
    last = np.concatenate([np.arange(len(one)) == len(one) - 1 for one in order])
    parts = (
        ("collective", rows.ravel(), everyone, 0),
        ("return", everyone, rows.ravel(), 0),
        ("thread", before, after, last),
    )
    count = sum(len(src) for _, src, _, _ in parts)
    return table(
        EDGE_COLUMNS,
        {
            "src": np.concatenate([src for _, src, _, _ in parts]),
            "dst": np.concatenate([dst for _, _, dst, _ in parts]),
            "kind": np.repeat([kind for kind, *_ in parts], [len(src) for _, src, _, _ in parts]),
            "lag_ns": np.zeros(count),
            "shift": np.concatenate([np.broadcast_to(s, len(src)) for _, src, _, s in parts]),
            "rule": ["meeting"] * count,
        },
        count,
    )
