"""One recorded rank of several in, how long its collectives may have waited for the others out.

A collective lasts from its own rank's arrival to the end of the transfer. Where the other ranks
were not recorded nothing tells the two apart, but for collectives of one size: all of them transfer
as long as the one does that took shortest.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from foretrace.transforms.collectives.usual_latency import nccl_latency
from foretrace.transforms.distributed.common.recast_collectives import insert_behind
from foretrace.transforms.edit.columns import is_in

if TYPE_CHECKING:
    import numpy.typing as npt

    from foretrace.graph.model import Graph
    from foretrace.transforms.edit.columns import Rows

    Floats = npt.NDArray[np.float64]

WAITING = "waiting for other ranks"
LIKE = 2.0
"""Sizes within this factor take as long per byte."""


def hidden_waits(graph: Graph) -> Rows:
    """Return, per task, how much of it may be waiting for ranks that were not recorded.

    At most what it took beyond the shortest one of about its size. Where a step has no other of its
    size, all but the least latency: each may have waited, in every step alike.

    Examples
    --------
    >>> from foretrace.graph.literal import literal
    >>> tasks = [("ncclAllReduce", "collective", 0, us * 1_000, None) for us in (150, 100)]
    >>> graph = literal(tasks, columns={"bytes": [4e6, 4e6]})
    >>> hidden_waits(replace(graph, meta=replace(graph.meta, world_size=2))).tolist()
    [50000, 0]
    """
    waits = np.zeros(len(graph.tasks), np.int64)
    lanes = graph.lanes
    is_alone = lanes["rank"].nunique() == 1 and not is_in(lanes["kind"], "link").any()
    ranks = graph.meta.world_size or 1
    if not is_alone or ranks == 1 or graph.state.workers is not None:
        return waits
    rows = np.flatnonzero(is_in(graph.tasks["kind"], "collective"))
    work, size = (graph.tasks[name].to_numpy(np.float64)[rows] for name in ("work_ns", "bytes"))
    shown = _shortest_alike(size, work, graph.steps)
    least = np.where(np.isnan(shown), nccl_latency(ranks).least_ns, shown)
    waits[rows] = np.maximum(work - least, 0)
    return waits


def part_waits(graph: Graph, waits: Rows) -> Graph:
    """Return the same job with these *waits* as tasks of their own, behind their collectives.

    They take as long as kernels of the other ranks do: what changes collectives leaves them.
    """
    rows = np.flatnonzero(waits)
    work = graph.tasks["work_ns"].to_numpy() - waits
    apart = replace(graph, tasks=graph.tasks.assign(work_ns=work))
    columns = {"name": WAITING, "kind": "kernel", "cost": "recorded", "work_ns": waits[rows]}
    return insert_behind(apart, rows, **columns)[0]


def _shortest_alike(size: Floats, time: Floats, steps: int) -> Floats:
    """Return what each takes at the best rate of those of about its *size*; NaN: it has no like.

    >>> _shortest_alike(np.array([4.0, 8.0, 100.0]), np.array([5.0, 8.0, 99.0]), 1)
    array([ 4.,  8., nan])
    """
    sizes, of_size, count = np.unique(size, return_inverse=True, return_counts=True)
    shortest = np.full(len(sizes), np.inf)
    np.minimum.at(shortest, of_size, time)
    ratio = sizes[:, None] / sizes[None, :]
    alike = (ratio <= LIKE) & (ratio >= 1 / LIKE)
    shown = np.where(alike, ratio * shortest[None, :], np.inf).min(axis=1, initial=np.inf)
    return np.where((alike * count[None, :]).sum(axis=1) > steps, shown, np.nan)[of_size]
