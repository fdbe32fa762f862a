"""The ranks of a pipeline, put together from the parts of one rank's step.

In: the graph of one rank, its tasks cut into parts, and the order in which each rank runs them.
Out: a graph with the lanes of every rank and nothing between ranks yet, and where each part runs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from foretrace.transforms.distributed.common.unfold_ranks import follow_in_turn
from foretrace.transforms.distributed.pipeline.partition import (
    FIRST,
    HEAD,
    TAIL,
    Cut,
    training_lanes,
)
from foretrace.transforms.edit.columns import Mask, Rows, append, is_in, take_rows
from foretrace.transforms.edit.primitives import CHAINS, chain, edge_rows
from foretrace.transforms.edit.select import launch_edges, on_device

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from foretrace.graph.model import Graph
    from foretrace.transforms.distributed.pipeline.schedules import Turn


class PartRun(NamedTuple):
    """One run of a part: the first and last of its tasks on the host, and on the device.

    Where the device has nothing to do in it, the host's tasks stand for the device's, and the other
    way round.
    """

    rank: int
    step: int
    part: int
    micro_batch: int
    first_host: int
    last_host: int
    first: int
    last: int


@dataclass(frozen=True)
class AssembledRanks:
    """The ranks' graph, and its runs in the order of each rank."""

    graph: Graph
    runs: tuple[PartRun, ...]


def assemble(graph: Graph, cut: Cut, order: Sequence[Sequence[Turn]]) -> AssembledRanks:
    """Return the graph of as many ranks as *order* has lists of turns.

    Chunk c of rank r is piece c x ranks + r of the model. What runs once per step runs on every
    rank, but loading on the first one alone.
    """
    plan = _Runs(graph, cut, order)
    lanes = _Lanes(graph, plan)
    count = len(graph.tasks)
    tasks = append(graph.tasks, plan.old, lanes.columns())
    tasks = take_rows(tasks, np.arange(len(tasks)) >= count)
    edges = _chains(graph, plan, lanes, _copies(graph, plan))
    together = replace(graph, tasks=tasks, edges=edges, lanes=lanes.table())
    return AssembledRanks(together, _runs(graph, plan))


@dataclass(frozen=True)
class _Runs:
    """Which part runs when, on which rank: one entry per run, one row per task of it."""

    graph: Graph
    cut: Cut
    order: Sequence[Sequence[Turn]]

    @property
    def ranks(self) -> int:
        return len(self.order)

    @cached_property
    def width(self) -> int:
        """Numbers of parts."""
        return FIRST + 2 * self.cut.pieces

    @cached_property
    def key(self) -> Rows:
        """A number per (step, part) of each recorded task."""
        step = self.graph.tasks["step"].to_numpy().astype(np.int64)
        return step * self.width + self.cut.part

    @cached_property
    def rows(self) -> dict[int, Rows]:
        """Tasks of each (step, part): the host's in order, then the device's, stream by stream."""
        lane, start = (self.graph.tasks[c].to_numpy() for c in ("lane", "start_ns"))
        device = on_device(self.graph)
        stream = np.where(device, lane, -1)
        order = np.lexsort((np.arange(len(lane)), start, stream, device, self.key))
        keys, begin = np.unique(self.key[order], return_index=True)
        return dict(zip(keys.tolist(), np.split(order, begin[1:]), strict=True))

    @cached_property
    def position(self) -> Rows:
        """Place of each recorded task in its (step, part)."""
        place = np.empty(len(self.key), np.int64)
        for rows in self.rows.values():
            place[rows] = np.arange(len(rows))
        return place

    @cached_property
    def entries(self) -> list[tuple[int, int, int, int, Rows]]:
        """Every run: rank, step, part, micro-batch, and its tasks; those of a rank in order."""
        return [
            (rank, step, part, batch, rows)
            for rank in range(self.ranks)
            for step in range(self.graph.steps)
            for part, batch in self._parts(rank)
            if len(rows := self._tasks(rank, step, part))
        ]

    def _parts(self, rank: int) -> list[tuple[int, int]]:
        passes = [
            (self.cut.of(turn.chunk * self.ranks + rank, turn.direction), turn.micro_batch)
            for turn in self.order[rank]
        ]
        return [(HEAD, 0), *passes, (TAIL, 0)]

    def _tasks(self, rank: int, step: int, part: int) -> Rows:
        rows = self.rows.get(step * self.width + part, np.empty(0, np.int64))
        return rows[~self.loads[rows]] if part == HEAD and rank else rows

    @cached_property
    def loads(self) -> Mask:
        """Tasks that load data, those on threads that do nothing else, and what they launch."""
        tasks, by = self.graph.tasks, launch_edges(self.graph)
        trains = np.isin(tasks["lane"].to_numpy(), training_lanes(self.graph))
        loads = is_in(tasks["phase"], "load") | is_in(tasks["kind"], "load")
        loads |= ~trains & ~on_device(self.graph)
        loads[by >= 0] |= loads[self.graph.edges["src"].to_numpy()[by[by >= 0]]]
        return loads

    @cached_property
    def begin(self) -> Rows:
        """First new row of each run, and one past the last run."""
        return np.cumsum([0, *(len(rows) for *_, rows in self.entries)])

    @cached_property
    def old(self) -> Rows:
        """Recorded row of each new task."""
        return np.concatenate([rows for *_, rows in self.entries])

    @cached_property
    def rank(self) -> Rows:
        """Rank of each new task."""
        return np.repeat([rank for rank, *_ in self.entries], np.diff(self.begin))

    @cached_property
    def passes(self) -> Rows:
        """First new row of each pass: [(step, part), micro-batch]; −1 where there is none."""
        batches = 1 + max(turn.micro_batch for turns in self.order for turn in turns)
        first = np.full((self.graph.steps * self.width, batches), -1, np.int64)
        for (_, step, part, batch, _), begin in zip(self.entries, self.begin, strict=False):
            if part >= FIRST:
                first[step * self.width + part, batch] = begin
        return first


@dataclass(frozen=True)
class _Lanes:
    """The lanes of the ranks: each has those its tasks run on; all training threads are one."""

    graph: Graph
    plan: _Runs

    @cached_property
    def merged(self) -> Rows:
        lane = np.arange(len(self.graph.lanes))
        threads = training_lanes(self.graph)
        main = threads[is_in(self.graph.lanes["role"], "main")[threads]]
        lane[threads] = main[0] if len(main) else threads[0]
        return lane

    @cached_property
    def recorded(self) -> Rows:
        """Recorded lane of each new task."""
        return self.merged[self.graph.tasks["lane"].to_numpy()[self.plan.old]]

    @cached_property
    def used(self) -> Mask:
        used = np.zeros((self.plan.ranks, len(self.graph.lanes)), bool)
        used[self.plan.rank, self.recorded] = True
        return used

    @cached_property
    def number(self) -> Rows:
        """New lane: [rank, recorded lane]."""
        return np.cumsum(self.used.ravel()).reshape(self.used.shape) - 1

    @cached_property
    def lane(self) -> Rows:
        """New lane of each new task."""
        return self.number[self.plan.rank, self.recorded]

    def table(self) -> pd.DataFrame:
        rank, lane = np.nonzero(self.used)
        lanes = append(self.graph.lanes, lane, {"rank": rank})
        return take_rows(lanes, np.arange(len(lanes)) >= len(self.graph.lanes))

    def columns(self) -> dict[str, Any]:
        """Return lanes, and starts that keep the order of each rank's host.

        Device tasks have the start at which the host's part of their run ends.
        """
        waited = self.graph.tasks["wait_lane"].to_numpy()[self.plan.old]
        of = self.number[self.plan.rank, self.merged[waited]]
        work = self.graph.tasks["work_ns"].to_numpy()[self.plan.old] + 1
        work[on_device(self.graph)[self.plan.old]] = 0
        ends = np.cumsum(work)
        first = np.searchsorted(self.plan.rank, np.arange(self.plan.ranks))
        start = ends - work
        start -= start[first][self.plan.rank]
        return {"lane": self.lane, "wait_lane": np.where(waited >= 0, of, -1), "start_ns": start}


def _runs(graph: Graph, plan: _Runs) -> tuple[PartRun, ...]:
    """Return where each run begins and ends; runs of loading threads alone are none."""
    lane = graph.tasks["lane"].to_numpy()
    device = on_device(graph)
    trains = np.isin(lane, training_lanes(graph)) & ~device
    computes = device & is_in(graph.lanes["role"], "compute")[lane]
    runs = []
    for (rank, step, part, batch, rows), begin in zip(
        plan.entries, plan.begin.tolist(), strict=False
    ):
        host, work = (begin + np.flatnonzero(where[rows]) for where in (trains, computes))
        host, work = (host, work if len(work) else host) if len(host) else (work, work)
        if len(host):
            ends = (int(host[0]), int(host[-1]), int(work[0]), int(work[-1]))
            runs.append(PartRun(rank, step, part, batch, *ends))
    return tuple(runs)


def _chains(graph: Graph, plan: _Runs, lanes: _Lanes, edges: pd.DataFrame) -> pd.DataFrame:
    """Chain the tasks of each lane in the order in which they are, and the last to the first.

    A task keeps the lag that it had to the one before it.
    """
    incoming, _ = chain(graph)
    lag = np.append(graph.edges["lag_ns"].to_numpy(), 0)[incoming[plan.old]]
    before, order, wraps = follow_in_turn(lanes.lane)
    is_stream = is_in(graph.lanes["kind"], "stream")[lanes.recorded[order]]
    for kind, which in zip(CHAINS, (~is_stream, is_stream), strict=True):
        edges = edge_rows(edges, before[which], order[which], kind, lag[order[which]], wraps[which])
    return edges


def _copies(graph: Graph, plan: _Runs) -> pd.DataFrame:
    """Return every recorded edge that holds on a rank, as often as it does there.

    The order on a lane is made anew, and what joined two threads that are now one is in it. Within
    the passes of a piece an edge holds for each micro-batch; elsewhere it leads from the last run
    of one part to the first of another. Pieces meet through what is sent.
    """
    edges = graph.edges
    src, dst, shift = (edges[c].to_numpy().astype(np.int64) for c in ("src", "dst", "shift"))
    threads = np.isin(graph.tasks["lane"].to_numpy(), training_lanes(graph))
    threads &= ~on_device(graph)
    gone = is_in(edges["kind"], *CHAINS)
    gone |= is_in(edges["kind"], "fork", "join") & threads[src] & threads[dst]
    step, part = graph.tasks["step"].to_numpy(), plan.cut.part
    together = (part[src] >= FIRST) & (part[dst] >= FIRST) & (shift == 0) & (step[src] == step[dst])
    same_piece = (part[src] - FIRST) // 2 == (part[dst] - FIRST) // 2
    parts = [_each_batch(plan, np.flatnonzero(~gone & together & same_piece), src, dst)]
    once = np.flatnonzero(~gone & ~together)
    parts += [_once(plan, rank, once, src, dst) for rank in range(plan.ranks)]
    like, begin, end = (np.concatenate(column) for column in zip(*parts, strict=True))
    every = append(edges, like, {"src": begin, "dst": end})
    return take_rows(every, np.arange(len(every)) >= len(edges))


def _each_batch(plan: _Runs, rows: Rows, src: Rows, dst: Rows) -> tuple[Rows, Rows, Rows]:
    """Return edges *rows* for each micro-batch: the recorded edge, and its new ends."""
    ends = [plan.passes[plan.key[end[rows]]] + plan.position[end[rows], None] for end in (src, dst)]
    like = np.repeat(rows, plan.passes.shape[1])
    return like, ends[0].ravel(), ends[1].ravel()


def _once(plan: _Runs, rank: int, rows: Rows, src: Rows, dst: Rows) -> tuple[Rows, Rows, Rows]:
    """Return those of the edges *rows* that have both ends on *rank*, with their new ends."""
    first, last = (np.full(len(plan.key), -1, np.int64) for _ in range(2))
    mine = np.flatnonzero(plan.rank == rank)
    last[plan.old[mine]] = mine
    first[plan.old[mine[::-1]]] = mine[::-1]
    begin, end = last[src[rows]], first[dst[rows]]
    here = (begin >= 0) & (end >= 0)
    return rows[here], begin[here], end[here]
