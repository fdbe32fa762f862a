"""Ranks that are alike are simulated once; here they are told apart again.

In: the graph of a job in which one rank stands for several. Out: a graph with copies of it that
meet at their collectives. Time and memory of a replay grow with the number of *different* ranks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from foretrace.errors import TransformError
from foretrace.transforms.cluster.placement import workers_placed
from foretrace.transforms.edit.columns import Mask, Rows, append, is_in, take_rows
from foretrace.transforms.edit.primitives import edge_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from foretrace.graph.model import Graph
    from foretrace.graph.shared_links import Network


def ranks_of(graph: Graph) -> Rows:
    """Return the ranks that compute, ascending; links belong to none."""
    computes = ~is_in(graph.lanes["kind"], "link")
    return np.unique(graph.lanes["rank"].to_numpy()[computes]).astype(np.int64)


def check_ranks(graph: Graph, ranks: Sequence[int]) -> Rows:
    """Return *ranks* if all of them are in *graph*.

    Raises
    ------
    TransformError
        One is not, or *ranks* is no list of numbers.
    """
    present = ranks_of(graph)
    if not isinstance(ranks, list | tuple) or not all(type(rank) is int for rank in ranks):
        raise TransformError(f"{ranks!r} is no list of ranks; write one as in [0, 2]")
    for rank in ranks:
        if rank not in present:
            raise TransformError(
                f"rank {rank} is not in this job; it has ranks {present.min()} to {present.max()}"
            )
    return np.array(ranks, np.int64)


def follow_in_turn(lane: Rows) -> tuple[Rows, Rows, Rows]:
    """Return, for tasks on lanes, which follows which in the order given: before, after, shift.

    The first on a lane follows the last one a window earlier.

    >>> [rows.tolist() for rows in follow_in_turn(np.array([7, 9, 7]))]
    [[2, 0, 1], [0, 2, 1], [1, 0, 1]]
    """
    order = np.argsort(lane, kind="stable")
    on = np.asarray(lane)[order]
    first = np.flatnonzero(np.append(True, on[1:] != on[:-1]))
    before = np.roll(order, 1)
    before[first] = order[np.append(first[1:], len(order)) - 1]
    return before, order, np.isin(np.arange(len(order)), first).astype(np.int64)


def count_alike(graph: Graph) -> int:
    """Return how many ranks of the job each rank of *graph* stands for."""
    placed = workers_placed(graph)
    if placed is None or graph.state.ranks_unfolded:
        return 1
    return max(1, len(placed.devices) // len(ranks_of(graph)))


def separate_rank(graph: Graph, rank: int) -> tuple[Graph, int]:
    """Return *graph* with *rank* simulated by itself, and the number it has there.

    Raises
    ------
    TransformError
        There is no such rank, or only one.
    """
    ranks, count = ranks_of(graph), count_alike(graph)
    named = ranks if count == 1 else np.arange(count * len(ranks))
    if len(named) == 1:
        raise TransformError(
            "this job has one rank, and nobody waits for it; first add others, as in ddp(workers=4)"
        )
    if rank not in named:
        raise TransformError(f"rank={rank!r} is none of this job's {len(named)} ranks, from 0 on")
    if count == 1:
        return graph, rank
    return unfold(graph, 2), int(ranks[rank // count])


def unfold(graph: Graph, copies: int) -> Graph:
    """Return *graph* with every rank there *copies* times; the copies meet at their collectives.

    Collectives on links exist once. One on a stream exists on every copy's, and the transfer
    between them once: it begins when the last copy is there, and all end with it. The first copy
    keeps its rank numbers.

    Examples
    --------
    >>> from foretrace.graph.literal import literal
    >>> graph = literal([("mm", "kernel", 0, 50, None), ("all_reduce", "collective", 0, 20, None)])
    >>> tasks = unfold(graph, 2).tasks
    >>> list(zip(tasks.name, tasks.lane, tasks.work_ns))[:2]
    [('mm', 0, 50), ('all_reduce', 0, 0)]
    >>> list(zip(tasks.name, tasks.lane, tasks.work_ns))[2:]
    [('mm', 1, 50), ('all_reduce', 1, 0), ('all_reduce', 2, 20)]
    """
    if copies == 1:
        return graph
    change = _Unfolding(graph, copies)
    unfolded_graph = replace(
        graph,
        tasks=change.tasks,
        edges=change.edges,
        lanes=change.lanes,
        state=replace(graph.state, ranks_unfolded=True),
    )
    network = graph.state.network
    return (
        unfolded_graph if network is None else unfolded_graph.with_state(network=change.on(network))
    )


@dataclass(frozen=True)
class _Unfolding:
    """Tables of the unfolded graph: the copies' tasks, the shared ones, transfers between streams.

    ``lane_of[c, lane]`` and ``row_of[c, task]`` are where copy c has them; what is shared has one
    place.
    """

    graph: Graph
    copies: int

    @cached_property
    def collective(self) -> Mask:
        return is_in(self.graph.tasks["kind"], "collective")

    @cached_property
    def own_lanes(self) -> Mask:
        """Lanes that every copy has: all but the links that only collectives use."""
        lane = self.graph.tasks["lane"].to_numpy()
        links = is_in(self.graph.lanes["kind"], "link")
        private = np.bincount(lane[~self.collective], minlength=len(links)) > 0
        return ~links | private

    @cached_property
    def lane_of(self) -> Rows:
        own = self.own_lanes
        place = np.cumsum(own) - 1
        count = int(own.sum())
        shared = self.copies * count + np.cumsum(~own) - 1
        return np.stack([np.where(own, c * count + place, shared) for c in range(self.copies)])

    @cached_property
    def streams(self) -> Rows:
        """Lanes of ranks that collectives run on; each gets a link for the transfers between."""
        lane = self.graph.tasks["lane"].to_numpy()
        return np.unique(lane[self.collective & self.own_lanes[lane]]).astype(np.int64)

    @cached_property
    def links(self) -> Rows:
        """The new lanes of those transfers."""
        return int(self.lane_of.max()) + 1 + np.arange(len(self.streams))

    @cached_property
    def rank_step(self) -> int:
        """Distance between the rank numbers of two copies."""
        return int(ranks_of(self.graph).max()) + 1

    @property
    def lanes(self) -> pd.DataFrame:
        lanes, own = self.graph.lanes, self.own_lanes
        mine, rank = take_rows(lanes, own), lanes["rank"].to_numpy()[own]
        every = np.arange(len(mine))
        result = mine
        for copy in range(1, self.copies):
            result = append(result, every, {"rank": rank + copy * self.rank_step})
        result = _with_rows(result, lanes, np.flatnonzero(~own))
        values = {"kind": "link", "device": -1, "role": "communication"}
        return append(result, self.lane_of[0][self.streams], values)

    @cached_property
    def shared(self) -> Mask:
        """Tasks that exist once."""
        return self.collective & ~self.own_lanes[self.graph.tasks["lane"].to_numpy()]

    @cached_property
    def met(self) -> Rows:
        """Collectives that every copy has on a stream of its own."""
        return np.flatnonzero(self.collective & ~self.shared)

    @cached_property
    def row_of(self) -> Rows:
        own = ~self.shared
        place, count = np.cumsum(own) - 1, int(own.sum())
        once = self.copies * count + np.cumsum(self.shared) - 1
        return np.stack([np.where(own, c * count + place, once) for c in range(self.copies)])

    @property
    def tasks(self) -> pd.DataFrame:
        tasks, own = self.graph.tasks, ~self.shared
        work = tasks["work_ns"].to_numpy().copy()
        waiting = work.copy()
        waiting[self.met] = 0
        mine = take_rows(tasks.assign(work_ns=waiting), own)
        result = mine.assign(**self._lanes_in(mine, 0))
        for copy in range(1, self.copies):
            result = append(result, np.arange(len(mine)), self._lanes_in(mine, copy))
        once = np.flatnonzero(self.shared)
        result = _with_rows(result, tasks.assign(**self._lanes_in(tasks, 0)), once)
        lane = self.links[np.searchsorted(self.streams, tasks["lane"].to_numpy()[self.met])]
        values = {"lane": lane, "work_ns": work[self.met], "wait": "none", "wait_lane": -1}
        return append(result, self.row_of[0][self.met], values)

    def _lanes_in(self, tasks: pd.DataFrame, copy: int) -> dict[str, Any]:
        lane, waits = tasks["lane"].to_numpy(), tasks["wait_lane"].to_numpy()
        of = np.append(self.lane_of[copy], -1)
        return {"lane": of[lane].astype(lane.dtype), "wait_lane": of[waits].astype(waits.dtype)}

    @property
    def edges(self) -> pd.DataFrame:
        edges = self.graph.edges
        src, dst = (edges[end].to_numpy() for end in ("src", "dst"))
        apart = np.flatnonzero(~(self.shared[src] & self.shared[dst]))
        first = self.row_of[0]
        result = edges.assign(src=first[src].astype(src.dtype), dst=first[dst].astype(dst.dtype))
        for rows in self.row_of[1:]:
            values = {"src": rows[src[apart]], "dst": rows[dst[apart]]}
            result = append(result, apart, values)
        transfer = int(self.row_of.max()) + 1 + np.arange(len(self.met))
        for rows in self.row_of:
            result = edge_rows(result, rows[self.met], transfer, "collective", 0)
            result = edge_rows(result, transfer, rows[self.met], "return", 0)
        return result

    def on(self, network: Network) -> Network:
        """Return *network* for the new lanes: transfers between copies join their ranks."""
        rank = self.graph.lanes["rank"].to_numpy()
        joins = {lane: [int(rank[lane])] for lane in network.transfer_lanes.tolist()}
        for lane in {lane for lane, _ in network.members}:
            joins[lane] = [each for at, each in network.members if at == lane]
        return replace(
            network,
            routes=tuple(
                (place, link, use)
                for lane, link, use in network.routes
                for place in dict.fromkeys(self._places(lane))
            ),
            members=tuple(
                (place, each + copy * self.rank_step)
                for lane, ranks in joins.items()
                for copy, place in enumerate(self._places(lane))
                for each in ranks
            ),
        )

    def _places(self, lane: int) -> list[int]:
        """Return the lane on which each copy's transfers of *lane* run."""
        if lane in self.streams:
            return [int(self.links[np.searchsorted(self.streams, lane)])] * self.copies
        lanes: list[int] = self.lane_of[:, lane].tolist()
        return lanes


def _with_rows(frame: pd.DataFrame, source: pd.DataFrame, rows: Rows) -> pd.DataFrame:
    """Return *frame* with some rows of *source*, whose categories are the same, behind it."""
    return append(
        frame,
        np.zeros(len(rows), np.int64),
        {name: source[name].array[rows] for name in source.columns},
    )
