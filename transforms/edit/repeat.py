"""Run a part of every step several times, as gradient accumulation does."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from foretrace.errors import TransformError
from foretrace.graph.model import DEVICE_KINDS
from foretrace.transforms.edit.columns import Mask, Rows, append, is_in
from foretrace.transforms.edit.primitives import CHAINS, chain, edge_rows
from foretrace.transforms.edit.remove import Hops, hops
from foretrace.transforms.edit.select import call_of

if TYPE_CHECKING:
    import pandas as pd

    from foretrace.graph.model import Graph

MOST_TASKS = 10_000_000
"""A graph with more tasks than this does not fit into the memory of a laptop."""


def repeat(graph: Graph, where: Mask, times: int) -> tuple[Graph, list[Rows]]:
    """Run the selected tasks of each step *times* times, one after the other on each lane.

    What was between them but not selected runs once, with the first time. Edges inside a step
    exist once per copy; an edge that leaves the selection leaves the last copy, and what its end
    waited for holds for the start of the next copy too; an edge from elsewhere enters the first. An
    edge to an earlier step (a loader thread that is just ahead of its label) joins the first copy
    to the last one of that step, and copy to copy before.

    Returns
    -------
    tuple
        The new graph, and per copy the rows of the selected tasks (the first are the originals).

    Raises
    ------
    TransformError
        The new graph would have more than `MOST_TASKS` tasks.

    Examples
    --------
    >>> from foretrace.graph.literal import literal
    >>> step = literal([("work", "host", 0, 5, "forward"), ("update", "host", 0, 5, "optimizer")])
    >>> new, copies = repeat(step, np.array([True, False]), 2)
    >>> new.edges[["src", "dst"]].values.tolist(), [rows.tolist() for rows in copies]
    ([[2, 1], [0, 2]], [[0], [2]])
    """
    where = _with_both_ends(graph, where)
    original = np.flatnonzero(where)
    count, size = len(graph.tasks), len(original)
    if times == 1 or not size:
        return graph, [original]
    if (tasks_after := count + size * (times - 1)) > MOST_TASKS:
        raise TransformError(
            f"{times} repetitions make {tasks_after:.3g} tasks, more than {MOST_TASKS:,}; "
            "repeat less often, or record fewer steps"
        )
    copies = [original, *(count + size * c + np.arange(size) for c in range(times - 1))]
    place = np.full((times, count), np.arange(count))
    for copy, rows in enumerate(copies):
        place[copy, original] = rows
    tasks = append(graph.tasks, np.tile(original, times - 1), {})
    tasks = tasks.assign(start_ns=_starts(graph, where, place))
    edges = _Copier(graph, where, place).edges()
    return replace(graph, tasks=tasks, edges=edges), copies


def _with_both_ends(graph: Graph, where: Mask) -> Mask:
    """Add to a selected device task its call, and to a selected call its device tasks."""
    by = call_of(graph)
    has = np.flatnonzero(by >= 0)
    call = by[has]
    wide = where.copy()
    wide[call[where[has]]] = True
    wide[has[wide[call]]] = True
    return wide


def _starts(graph: Graph, where: Mask, place: Rows) -> Rows:
    """Return starts that keep the order: each copy of a step's block after the one before it.

    The order of calls decides what a synchronisation waits for. Training threads share streams
    and move together; a loader thread, which may run ahead, has a block of its own.
    """
    tasks = graph.tasks
    start = tasks["start_ns"].to_numpy().astype(np.int64)
    end = start + tasks["duration_ns"].to_numpy()
    step = np.clip(tasks["step"].to_numpy().astype(np.int64), 0, graph.steps - 1)
    lane = tasks["lane"].to_numpy().astype(np.int64)
    host = where & ~is_in(tasks["kind"], *DEVICE_KINDS)
    loads = is_in(graph.lanes["role"], "loader")[lane]
    count = len(graph.lanes) + 1
    block = np.where(loads, lane, count - 1) * graph.steps + step
    first, last = _span(block[host], start[host], end[host], count * graph.steps)
    spans = np.maximum(last - first, 0).reshape(count, graph.steps)
    length = np.where((first <= last).reshape(count, graph.steps), spans, 0).max(axis=0) + 1
    own = lane * graph.steps + step
    _, own_last = _span(own[host], start[host], start[host], count * graph.steps)
    times = len(place)
    before = (times - 1) * (np.cumsum(length) - length)
    after = ~where & (start >= own_last[own])
    moved = start + before[step] + np.where(after, (times - 1) * length[step], 0)
    copies = [
        start[where] + before[step[where]] + copy * length[step[where]] for copy in range(1, times)
    ]
    return np.concatenate([moved, *copies])


def _span(key: Rows, start: Rows, end: Rows, size: int) -> tuple[Rows, Rows]:
    """Return the earliest start and the latest end per key; (max, min) where there is none."""
    first = np.full(size, np.iinfo(np.int64).max)
    last = np.full(size, np.iinfo(np.int64).min)
    np.minimum.at(first, key, start)
    np.maximum.at(last, key, end)
    return first, last


@dataclass(frozen=True)
class _Copier:
    """The edges of a graph in which the tasks *where* exist ``len(place)`` times.

    ``place[c, task]`` is the row of the task's copy c; not selected, it is the task itself.
    """

    graph: Graph
    where: Mask
    place: Rows

    def edges(self) -> pd.DataFrame:
        """Return every edge once, or once per copy, and the chains from copy to copy."""
        kinds = self.graph.edges["kind"]
        src, dst, where = self.src, self.dst, self.where
        is_chain = is_in(kinds, *CHAINS)
        leaves = where[src] & ~self.together
        leaves &= np.where(is_chain, self.is_last[src], ~self.inside[dst])
        early = ~is_chain & (self.jump < 0)
        last = np.where(leaves & ~early, self.place[-1, src], src).astype(np.int32)
        entered = np.where(early, self.place[-1, dst], dst).astype(np.int32)
        edges = self.graph.edges.assign(src=last, dst=entered)
        free = ~is_chain & ~is_in(kinds, "launch", "return", "collective")
        back = np.flatnonzero(free & early & where[src] & where[dst])
        free &= ~early
        inner = np.flatnonzero(self.together & ~is_chain)
        ends = np.flatnonzero(free & where[src] & ~where[dst])
        starts = np.flatnonzero(free & ~where[src] & where[dst] & self.inside[src])
        come = self.back.to[src[starts]]
        edges = self._added(edges, inner, self.now[:, src[inner]], self.now[:, dst[inner]])
        edges = self._waits(edges, ends)
        edges = self._added(edges, starts, self.now[:, come], self.now[:, dst[starts]])
        return self._chains(self._early(edges, back))

    def _added(
        self, edges: pd.DataFrame, like: Rows, src: Rows, dst: Rows, **values: int
    ) -> pd.DataFrame:
        """Return *edges* with those *like* once more per copy, between other tasks."""
        ends = {"src": src.ravel(), "dst": dst.ravel()}
        return append(edges, np.tile(like, len(src)), {**ends, **values})

    def _waits(self, edges: pd.DataFrame, ends: Rows) -> pd.DataFrame:
        """Add, for edges out of the selection, what they mean for the next copy."""
        src, dst = self.src[ends], self.dst[ends]
        same = self.inside[dst]
        onto = self.now[:, self.ahead.to[dst[same]]]
        edges = self._added(edges, ends[same], self.now[:, src[same]], onto)
        entry = self.first_of[self._block(dst, self.step[src])]
        onward = ~same & (entry >= 0)
        onto = self.now[:, entry[onward]]
        return self._added(edges, ends[onward], self.before[:, src[onward]], onto, shift=0)

    def _early(self, edges: pd.DataFrame, back: Rows) -> pd.DataFrame:
        """Let the next copy, too, start what is labelled one step before it: the last copy."""
        src = self.src[back]
        entry = self.first_of[self._block(self.dst[back], self.step[src])]
        has = entry >= 0
        return self._added(edges, back[has], self.now[:, src[has]], self.before[:, entry[has]])

    def _chains(self, edges: pd.DataFrame) -> pd.DataFrame:
        """Chain each copy, and put it behind the copy before it."""
        first, last = self.ends
        lags = self.graph.edges["lag_ns"].to_numpy()
        entry = chain(self.graph)[0][first]
        entry_lag = np.where(entry >= 0, lags[entry] if len(lags) else 0, 0)
        inner = np.flatnonzero(self.where & self.goes_on)
        src = np.hstack([self.now[:, inner], self.before[:, last]])
        dst = np.hstack([self.now[:, self.ahead.to[inner]], self.now[:, first]])
        lag = np.broadcast_to(np.concatenate([self.ahead.lag_ns[inner], entry_lag]), src.shape)
        lane = self.lane[np.concatenate([inner, last])]
        stream = is_in(self.graph.lanes["kind"], "stream")[lane]
        for kind, chosen in (("thread", ~stream), ("stream", stream)):
            between, onto, after = (each[:, chosen].ravel() for each in (src, dst, lag))
            edges = edge_rows(edges, between, onto, kind, after)
        return edges

    def _block(self, task: Rows, step: Rows) -> Rows:
        """Return the number of the block on the lane of *task* in *step*."""
        return self.lane[task] * self.graph.steps + step

    @property
    def now(self) -> Rows:
        """Rows of every copy but the first, a row of rows per copy."""
        return self.place[1:]

    @property
    def before(self) -> Rows:
        """Rows of the copy before each of `now`."""
        return self.place[:-1]

    @cached_property
    def src(self) -> Rows:
        return self.graph.edges["src"].to_numpy().astype(np.int64)

    @cached_property
    def dst(self) -> Rows:
        return self.graph.edges["dst"].to_numpy().astype(np.int64)

    @cached_property
    def lane(self) -> Rows:
        return self.graph.tasks["lane"].to_numpy().astype(np.int64)

    @cached_property
    def step(self) -> Rows:
        return np.clip(
            self.graph.tasks["step"].to_numpy().astype(np.int64), 0, self.graph.steps - 1
        )

    @cached_property
    def _hops(self) -> tuple[Hops, Hops]:
        return hops(self.graph, ~self.where)

    @property
    def ahead(self) -> Hops:
        return self._hops[0]

    @property
    def back(self) -> Hops:
        return self._hops[1]

    @cached_property
    def together(self) -> Mask:
        """Edges between selected tasks of one step."""
        src, dst = self.src, self.dst
        shift = self.graph.edges["shift"].to_numpy()
        return self.where[src] & self.where[dst] & (shift == 0) & (self.step[src] == self.step[dst])

    @cached_property
    def jump(self) -> Rows:
        """Steps from the start of each edge to its end; a loader that is early has −1."""
        steps = self.graph.steps * self.graph.edges["shift"].to_numpy().astype(np.int64)
        return self.step[self.dst] + steps - self.step[self.src]

    @cached_property
    def goes_on(self) -> Mask:
        """Tasks with a selected task of their own step ahead on their lane."""
        to = self.ahead.to
        return (to >= 0) & (self.ahead.shift == 0) & (self.step[to] == self.step)

    @cached_property
    def inside(self) -> Mask:
        """Tasks not selected, but with selected ones of their step before and after them."""
        to = self.back.to
        before = (to >= 0) & (self.back.shift == 0) & (self.step[to] == self.step)
        return ~self.where & before & self.goes_on

    @cached_property
    def ends(self) -> tuple[Rows, Rows]:
        """First and last selected task of each block, a lane's share of a step."""
        inner = self.where & self.goes_on
        has_before = np.zeros(len(inner), bool)
        has_before[self.ahead.to[inner]] = True
        first, last = np.flatnonzero(self.where & ~has_before), np.flatnonzero(self.where & ~inner)
        first, last = (
            rows[np.argsort(self._block(rows, self.step[rows]), kind="stable")]
            for rows in (first, last)
        )
        return first, last

    @cached_property
    def is_last(self) -> Mask:
        return np.isin(np.arange(len(self.where)), self.ends[1])

    @cached_property
    def first_of(self) -> Rows:
        """First selected task per block; −1 for a block without one."""
        first_task = np.full(len(self.graph.lanes) * self.graph.steps, -1, np.int64)
        first = self.ends[0][::-1]
        first_task[self._block(first, self.step[first])] = first
        return first_task
