"""A graph in, how its recording loads batches out: who loads, who takes over, and at what cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foretrace.errors import TransformError
from foretrace.transforms.edit.columns import is_in
from foretrace.transforms.edit.parameters import reconcile
from foretrace.transforms.edit.select import first_per_step, rank_of_tasks

if TYPE_CHECKING:
    from foretrace.graph.model import Graph
    from foretrace.transforms.edit.columns import Mask, Rows

VISIBLE = 0.001
"""Loading below this share of a step is no loading that workers could take over."""


@dataclass(frozen=True)
class Loading:
    """How the recording loads: which tasks do it, who takes each step's batch, and the cost.

    ``workers`` is 0 where the training process loads, and ``None`` where nobody counted them;
    ``batch_ns`` is what a batch takes one process, ``None`` where nothing shows it.
    """

    tasks: Mask
    consumers: Rows
    batch_ns: float | None
    workers: int | None = 0


def find_loading(graph: Graph, recorded_workers: int | None) -> Loading:
    """Find what loads in the recording, and what one batch costs one process."""
    tasks = graph.tasks
    loads = is_in(tasks["kind"], "load")
    loader = graph.meta.loader or {}
    seen = graph.state.loader
    if loads.any():
        old = reconcile("recorded_workers", recorded_workers, loader.get("workers"), "workers")
        if not old:
            raise TransformError(
                "the trace does not say how many workers it ran; give recorded_workers=..."
            )
        per_step = _measure_per_step(graph, loads)
        if seen and seen.burst_ns:
            per_step = seen.others_ns + seen.burst_ns / old
        return Loading(
            loads, _consumers(graph, loads), float(loader.get("load_ns") or per_step * old), old
        )
    lane = tasks["lane"].to_numpy()
    if (is_in(graph.lanes["role"], "loader")[lane] & is_in(tasks["kind"], "host")).any():
        raise TransformError(
            "the recording loads in threads of its own (such as DALI's); "
            "this what-if is about loader worker processes"
        )
    role = is_in(graph.lanes["role"], "main")[lane]
    own = role & is_in(tasks["phase"], "load") & is_in(tasks["kind"], "host")
    if (seen or loader.get("workers")) and own.any():
        old = reconcile("recorded_workers", recorded_workers, loader.get("workers"), "workers")
        cost = float(loader["load_ns"]) if loader.get("load_ns") else None
        return Loading(own, _first_of_each(graph, own), cost, old)
    work = _measure_per_step(graph, own)
    if work < VISIBLE * graph.measured_step_ns or not own.any():
        raise TransformError(
            "nothing to change: the training process spends no visible time on loading"
        )
    return Loading(own, _first_of_each(graph, own), work)


def _measure_per_step(graph: Graph, where: Mask) -> float:
    """Return the work of the tasks *where*, per step of one rank: each has a loader of its own."""
    ranks = len(np.unique(rank_of_tasks(graph)[where]))
    return float(graph.tasks["work_ns"].to_numpy()[where].sum() / graph.steps / max(ranks, 1))


def _first_of_each(graph: Graph, where: Mask) -> Rows:
    """Return the first of the tasks *where* of each step, rank after rank."""
    rank = rank_of_tasks(graph)
    ranks = np.unique(rank[where])
    return np.concatenate([first_per_step(graph, where & (rank == each)) for each in ranks])


def _consumers(graph: Graph, loads: Mask) -> Rows:
    """Return who takes the batch of each rank and step: the task that waited, else the first."""
    edges, rank = graph.edges, rank_of_tasks(graph)
    src, dst = edges["src"].to_numpy(), edges["dst"].to_numpy().astype(np.int64)
    waited = dst[is_in(edges["kind"], "data") & loads[src]]
    main = is_in(graph.lanes["role"], "main")[graph.tasks["lane"].to_numpy()]
    step = graph.tasks["step"].to_numpy()
    takes = {(rank[task], step[task]): task for task in _first_of_each(graph, main)}
    takes |= {(rank[task], step[task]): task for task in waited}
    return np.array([takes[place] for place in sorted(takes)], np.int64)
