"""Give a recorded job times that another recording of it measured, group by group.

In: two graphs, and which task is which. Out: the first with the work and the lags of some groups
as they are in the second. Which tasks there are, and what waits for what, is that of the graph that
is changed. Loading and communication that stand in one of them alone come and go all the same: the
task before them, which both have, takes as much longer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from foretrace.graph.model import DEVICE_KINDS, WAITS
from foretrace.transforms.edit.columns import append, is_in
from foretrace.transforms.edit.primitives import CHAINS, edge_rows
from foretrace.transforms.measured.match_tasks import NONE, lane_keys, match_tasks

if TYPE_CHECKING:
    from collections.abc import Collection

    import numpy.typing as npt

    from foretrace.graph.model import Graph
    from foretrace.transforms.edit.columns import Mask, Rows

    Codes = npt.NDArray[np.int64]

GROUPS = {
    "kernels": "device work: kernels, copies and memsets",
    "host": "what the host does between and in its calls",
    "loader": "making batches, and fetching them",
    "communication": "collectives, sends and receives",
    "latencies": "gaps on a stream, from a launch to its start, from an end to a return, and idle"
    " time that nothing explains",
}
"""What can be exchanged, and what is meant by it."""
KERNELS, HOST, LOADER, COMMUNICATION, LATENCIES = GROUPS
_NAMES = [*GROUPS]
CARRIED = (LOADER, COMMUNICATION)
"""Groups of which also those tasks are exchanged that have no counterpart."""
HOST_EDGES = ("thread", "fork", "join")
ONE_EACH = (*CHAINS, "launch")
"""Kinds of edges of which a task has one at most: it is known by where it ends."""


@dataclass(frozen=True)
class Counterparts:
    """Two recordings of a job, and per task of ``graph`` the row in ``other``; −1 where none."""

    graph: Graph
    other: Graph
    partner: Rows

    @cached_property
    def task_groups(self) -> Codes:
        """The group of each task, a position in `GROUPS`."""
        kind, phase = self.graph.tasks["kind"], self.graph.tasks["phase"]
        device = is_in(kind, *DEVICE_KINDS)
        group = np.where(device, _NAMES.index(KERNELS), _NAMES.index(HOST))
        group[is_in(kind, "load") | (is_in(phase, "load") & ~device)] = _NAMES.index(LOADER)
        group[is_in(kind, "collective", "p2p")] = _NAMES.index(COMMUNICATION)
        return group

    @cached_property
    def edge_groups(self) -> Codes:
        """The group of each edge; the time before a fetch is the loader's."""
        kind, dst = self.graph.edges["kind"], self.graph.edges["dst"].to_numpy()
        group = np.full(len(kind), _NAMES.index(LATENCIES))
        group[is_in(kind, *HOST_EDGES)] = _NAMES.index(HOST)
        fetches = self.task_groups[dst] == _NAMES.index(LOADER)
        group[is_in(kind, "data") | (is_in(kind, "thread") & fetches)] = _NAMES.index(LOADER)
        group[is_in(kind, "collective")] = _NAMES.index(COMMUNICATION)
        return group

    @cached_property
    def is_alone(self) -> Mask:
        """Which tasks count as work that the other recording does not have."""
        carried = [_NAMES.index(name) for name in CARRIED]
        return (self.partner == NONE) & ~np.isin(self.task_groups, carried)

    @cached_property
    def work_ns(self) -> Rows:
        """Work of each task in the other recording; its own where that does not have it."""
        others = self.other.tasks["work_ns"].to_numpy()
        own = self.graph.tasks["work_ns"].to_numpy()
        lacking = np.where(self.is_alone, own, 0)
        return np.where(self.partner == NONE, lacking, others[self.partner])

    @cached_property
    def carried_ns(self) -> dict[str, Rows]:
        """How much longer each task takes for what the other alone has, by group of `CARRIED`."""
        other = Counterparts(self.other, self.graph, _invert(self.partner, self.other))
        known = other.partner != NONE
        beside = self.other.tasks["step"].to_numpy() < self.graph.steps
        edges, spent = self.other.edges, self.other.tasks["work_ns"].to_numpy().copy()
        chained = is_in(edges["kind"], *CHAINS)
        spent[edges["dst"].to_numpy()[chained]] += edges["lag_ns"].to_numpy()[chained]
        carried = {}
        for group in CARRIED:
            lost = beside & ~known & (other.task_groups == _NAMES.index(group))
            carrier = _find_carriers(self.other, lost, known)
            rows = np.flatnonzero(lost & (carrier != NONE))
            total = np.bincount(carrier[rows], spent[rows], len(lost)).astype(np.int64)
            carried[group] = np.where(self.partner == NONE, 0, total[self.partner])
        return carried

    @cached_property
    def lag_ns(self) -> Rows:
        """Lag of each edge in the other recording; its own where that does not have it."""
        edges, others = self.graph.edges, self.other.edges
        src, dst = (edges[end].to_numpy() for end in ("src", "dst"))
        listed = _edge_keys(others["src"].to_numpy(), others["dst"].to_numpy(), others["kind"])
        place = {key: at for at, key in enumerate(listed)}
        wanted = _edge_keys(self.partner[src], self.partner[dst], edges["kind"])
        at = np.array([place.get(key, NONE) for key in wanted], np.int64)
        gone = (self.partner == NONE) & ~self.is_alone
        lacking = np.where(gone[src] | gone[dst], 0, edges["lag_ns"].to_numpy())
        return np.where(at == NONE, lacking, others["lag_ns"].to_numpy()[at])

    @cached_property
    def waits(self) -> dict[str, Any]:
        """Columns of what each call waits for, as its counterpart does, where that is known."""
        tasks, others = self.graph.tasks, self.other.tasks
        lanes = {key: at for at, key in enumerate(lane_keys(self.graph))}
        lane_of = [*(lanes.get(key, NONE) for key in lane_keys(self.other)), NONE]
        wait, theirs = (each["wait"].to_numpy(object) for each in (tasks, others))
        lane, back = (tasks[name].to_numpy().copy() for name in ("wait_lane", "return_ns"))
        theirs = theirs[self.partner]
        rows = np.flatnonzero((self.partner != NONE) & ((wait != "none") | (theirs != "none")))
        named = others["wait_lane"].to_numpy()[self.partner[rows]]
        found = np.array(lane_of, np.int64)[named]
        known = (named < 0) | (found >= 0)
        rows = rows[known]
        wait[rows], lane[rows] = theirs[rows], found[known]
        back[rows] = others["return_ns"].to_numpy()[self.partner[rows]]
        kinds = pd.Categorical(wait, list(WAITS))
        return {"wait": kinds, "wait_lane": lane, "return_ns": back}

    def has(self, group: str) -> bool:
        """Tell whether any task or edge of the graph is of *group*."""
        code = _NAMES.index(group)
        return bool((self.task_groups == code).any() or (self.edge_groups == code).any())


def match(graph: Graph, other: Graph) -> Counterparts:
    """Find the tasks of *graph* in *other*."""
    return Counterparts(graph, other, match_tasks(graph, other))


def exchange(pair: Counterparts, groups: Collection[str]) -> Graph:
    """Return the graph of *pair* with the times of *groups* as the other recording has them.

    >>> from foretrace.graph.literal import literal
    >>> one, other = (
    ...     literal([("step", "host", 0, host, None), ("gemm", "kernel", 1, gemm, None)])
    ...     for host, gemm in ((5, 9), (7, 20))
    ... )
    >>> exchange(match(one, other), ["kernels"]).tasks.work_ns.tolist()
    [5, 20]
    """
    graph, codes = pair.graph, [_NAMES.index(name) for name in groups]
    work, lag = graph.tasks["work_ns"].to_numpy(), graph.edges["lag_ns"].to_numpy()
    work = np.where(np.isin(pair.task_groups, codes), pair.work_ns, work)
    lag = np.where(np.isin(pair.edge_groups, codes), pair.lag_ns, lag)
    work = work + sum(pair.carried_ns[name] for name in CARRIED if name in groups)
    changed = replace(
        graph, tasks=graph.tasks.assign(work_ns=work), edges=graph.edges.assign(lag_ns=lag)
    )
    if LATENCIES in groups:
        platform = replace(graph.platform, queue_depth=pair.other.platform.queue_depth)
        changed = replace(changed, tasks=changed.tasks.assign(**pair.waits), platform=platform)
    return _exchange_loading(pair, changed) if LOADER in groups else changed


def _invert(partner: Rows, other: Graph) -> Rows:
    """Return, per task of *other*, a task whose *partner* it is; −1 where there is none."""
    rows = np.full(len(other.tasks), NONE, np.int64)
    matched = np.flatnonzero(partner != NONE)
    rows[partner[matched]] = matched
    return rows


def _find_carriers(graph: Graph, lost: Mask, known: Mask) -> Rows:
    """Return, per *lost* task, the last *known* one before it on its lane, else the next."""
    rows = np.flatnonzero(lost | known)
    lane, start = (graph.tasks[name].to_numpy()[rows] for name in ("lane", "start_ns"))
    order = np.lexsort((rows, start, lane))
    rows, lane = rows[order], lane[order]
    place = np.where(known[rows], np.arange(len(rows)), NONE)
    last = np.maximum.accumulate(place)
    following = np.where(place == NONE, len(rows), place)
    following = np.minimum.accumulate(following[::-1])[::-1]
    carrier = np.full(len(graph.tasks), NONE, np.int64)
    for at in (np.minimum(following, len(rows) - 1), last):  # what comes last is preferred
        fits = (at != NONE) & (lane[at] == lane) & known[rows[at]]
        carrier[rows[fits]] = rows[at[fits]]
    return carrier


def _edge_keys(src: Rows, dst: Rows, kind: pd.Series) -> list[tuple[int, int, str]]:
    """Return what tells an edge from others: where it ends, and mostly where it begins."""
    return [
        (NONE if name in ONE_EACH else a, b, name)
        for a, b, name in zip(src.tolist(), dst.tolist(), kind.tolist(), strict=True)
    ]


def _exchange_loading(pair: Counterparts, graph: Graph) -> Graph:
    """Let batches take as long as in the other recording, on average over all of its steps."""
    mine, theirs = (is_in(each.tasks["kind"], "load") for each in (graph, pair.other))
    if not mine.any():
        return _insert_loading(pair, graph, theirs) if theirs.any() else graph
    total = pair.other.tasks["work_ns"].to_numpy()[theirs].sum() / pair.other.steps * graph.steps
    work = graph.tasks["work_ns"].to_numpy().copy()
    taken = work[mine]
    even = np.full(len(taken), total / len(taken))
    work[mine] = np.rint(taken * (total / taken.sum()) if taken.any() else even)
    return replace(graph, tasks=graph.tasks.assign(work_ns=work))


def _insert_loading(pair: Counterparts, graph: Graph, loads: Mask) -> Graph:
    """Give every task a batch to wait for whose counterpart waits for one."""
    other = pair.other
    handed = other.edges[is_in(other.edges["kind"], "data") & loads[other.edges["src"].to_numpy()]]
    load_of = np.full(len(other.tasks) + 1, NONE, np.int64)
    lag_of = np.zeros(len(other.tasks) + 1, np.int64)
    load_of[handed["dst"]], lag_of[handed["dst"]] = handed["src"], handed["lag_ns"]
    rank = graph.lanes["rank"].to_numpy()[graph.tasks["lane"].to_numpy()]
    consumers = np.flatnonzero((load_of[pair.partner] != NONE) & (pair.partner != NONE))
    for number in np.unique(rank[consumers]):
        mine = consumers[rank[consumers] == number]
        mine = mine[np.argsort(graph.tasks["start_ns"].to_numpy()[mine], kind="stable")]
        at = pair.partner[mine]
        work = other.tasks["work_ns"].to_numpy()[load_of[at]]
        graph = _append_loads(graph, mine, work, lag_of[at])
    return graph


def _append_loads(graph: Graph, consumers: Rows, work: Rows, lag: Rows) -> Graph:
    """Append a lane on which a batch of so much *work* is made for each of *consumers*."""
    lane, first = len(graph.lanes), len(graph.tasks)
    like = graph.tasks["lane"].to_numpy()[consumers[:1]].astype(np.int64)
    lanes = append(graph.lanes, like, {"kind": "loader", "role": "loader", "device": -1})
    quiet = {"wait": "none", "wait_lane": NONE, "return_ns": 0, "lock": 0, "operator": NONE}
    made = {"name": "batch", "kind": "load", "phase": "load", "lane": lane, "cost": "measured"}
    tasks = append(graph.tasks, consumers, {**quiet, **made, "work_ns": work, "duration_ns": work})
    loads = first + np.arange(len(consumers))
    is_last = np.arange(len(loads)) == len(loads) - 1
    edges = edge_rows(graph.edges, loads, np.roll(loads, -1), "thread", 0, is_last.astype(int))
    edges = edge_rows(edges, loads, consumers, "data", lag)
    return replace(graph, tasks=tasks, edges=edges, lanes=lanes)
