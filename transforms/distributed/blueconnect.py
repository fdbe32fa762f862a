"""BlueConnect: an all-reduce taken apart along the levels of the network."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from foretrace.errors import TransformError
from foretrace.transforms.collectives.cost import collective_cost, cost_at_once
from foretrace.transforms.collectives.estimate import nested_groups
from foretrace.transforms.distributed.common.collective_tasks import collectives
from foretrace.transforms.distributed.common.recast_collectives import redirect_edges, share_network
from foretrace.transforms.distributed.common.transfers import add_lane, put
from foretrace.transforms.distributed.common.workers import workers_of
from foretrace.transforms.edit.primitives import edge_rows
from foretrace.transforms.edit.provenance import add_note
from foretrace.transforms.edit.remove import remove

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foretrace.graph.model import Graph
    from foretrace.transforms.cluster.placement import Placement
    from foretrace.transforms.collectives.cost import Cost
    from foretrace.transforms.edit.columns import Rows

PREFIX = "BlueConnect "
"""Names of the tasks that it adds begin so."""


class _Stage(NamedTuple):
    """One stage of an all-reduce: on which level, which collective, and its cost."""

    level: int
    kind: str
    cost: Cost
    bytes: float


def blueconnect(graph: Graph) -> Graph:
    """Take every all-reduce apart: reduced and scattered from the inside outwards, gathered back.

    Parameters
    ----------
    graph
        A job of several workers, after ddp(...) on a cluster with more than one level: machines of
        several devices, or racks.

    Notes
    -----
    Assumes: the workers are split by machine, then by each level of switches, evenly. Each level
    runs one collective at a time; all groups of a level run theirs at once and share its links. The
    stages of one bucket overlap those of another on other levels.
    Unknown: what starting several kernels instead of one costs the host.
    Source: BlueConnect (MLSys 2019); Daydream (ATC 2020) expresses it the same way.

    Examples
    --------
    >>> from foretrace.transforms.cluster.presets import load_cluster
    >>> from foretrace.transforms.distributed.common.workers import with_workers
    >>> from foretrace.transforms.cluster.placement import Placement
    >>> from foretrace.graph.literal import literal
    >>> graph = literal(
    ...     [("all_reduce", "collective", 0, 9_000_000, "communication")],
    ...     columns={"bytes": [1e8]}, wrap=True,
    ... )
    >>> placed = Placement(load_cluster("dgx-a100", nodes=2), tuple(range(16)))
    >>> [name.split()[-1] for name in blueconnect(with_workers(graph, placed)).tasks.name]
    ['reduce_scatter', 'all_gather', 'all_reduce']
    """
    rows = collectives(graph, "all_reduce", "blueconnect")
    placed = workers_of(graph, "blueconnect")
    levels = [each for each in nested_groups(placed.cluster, placed.devices) if len(each[0]) > 1]
    if len(levels) == 1:
        raise TransformError(
            "nothing to change: all workers are on one level of the network, which needs no more "
            "than a single all-reduce"
        )
    rows = rows[np.argsort(graph.tasks["start_ns"].to_numpy()[rows], kind="stable")]
    sizes = graph.tasks["bytes"].to_numpy()[rows]
    if not np.isfinite(sizes).all():
        raise TransformError(
            "blueconnect needs the bytes of every all-reduce; this trace lacks some"
        )
    extra = graph.tasks["work_ns"].to_numpy()[rows] - [
        collective_cost(placed.cluster, placed.devices, "all_reduce", size).ns for size in sizes
    ]
    stages = {size: _stages(placed, levels, size) for size in set(sizes.tolist())}
    changed = _insert_stages(graph, rows, [stages[size] for size in sizes.tolist()], extra)
    gone = np.zeros(len(changed.tasks), bool)
    gone[rows] = True
    spans = " x ".join(str(len(groups[0])) for groups in levels)
    return add_note(
        remove(changed, gone),
        f"blueconnect: {len(rows)} all-reduces in {graph.steps} steps become {spans} stages",
    )


def _stages(
    placed: Placement, levels: Sequence[Sequence[tuple[int, ...]]], size: float
) -> list[_Stage]:
    """Return the stages of one all-reduce of *size* bytes, in order."""
    out: list[_Stage] = []
    back: list[_Stage] = []
    for level, groups in enumerate(levels[:-1]):
        for kind, stages in (("reduce_scatter", out), ("all_gather", back)):
            stages.append(
                _Stage(level, kind, cost_at_once(placed.cluster, groups, kind, size), size)
            )
        size /= len(groups[0])
    middle = cost_at_once(placed.cluster, levels[-1], "all_reduce", size)
    return [*out, _Stage(len(levels) - 1, "all_reduce", middle, size), *back[::-1]]


def _insert_stages(
    graph: Graph, rows: Rows, stages: Sequence[Sequence[_Stage]], extra: Rows
) -> Graph:
    """Put the stages of each of *rows* on a lane per level, one after the other."""
    depth = len(stages[0])
    made = np.full((len(rows), depth), -1, np.int64)
    like = int(graph.tasks["lane"].iloc[int(rows[0])])
    kind, device = (graph.lanes[c].iloc[like] for c in ("kind", "device"))
    lanes: list[int] = []
    step = graph.tasks["step"].to_numpy()[rows]
    for level in range(depth // 2 + 1):
        places = _order(step, level, depth)
        graph, lane = add_lane(graph, kind=str(kind), device=int(device))
        each = [stages[at][stage] for at, stage in places]
        work = [s.cost.ns + (extra[at] if stage == 0 else 0)
                for s, (at, stage) in zip(each, places, strict=True)]  # fmt: skip
        graph, new = put(
            graph,
            lane,
            rows[[at for at, _ in places]],
            name=pd.Categorical([PREFIX + stage.kind for stage in each]),
            work_ns=np.maximum(np.array(work), 0),
            bytes=np.array([stage.bytes for stage in each]),
            cost=pd.Categorical([stage.cost.source for stage in each]),
        )
        for row, (at, stage) in zip(new.tolist(), places, strict=True):
            made[at, stage] = row
        lanes.append(lane)
    edges = graph.edges
    for before, after in pairwise(made.T):
        edges = edge_rows(edges, before, after, "event", 0)
    graph = redirect_edges(replace(graph, edges=edges), rows, made[:, 0], made[:, -1])
    return share_network(graph, like, lanes)


def _order(step: Rows, level: int, depth: int) -> list[tuple[int, int]]:
    """Return (all-reduce, stage) in the order in which *level* runs them.

    Of each step: scattering of the next bucket comes before gathering of the last one.

    Examples
    --------
    >>> _order(np.array([0, 0, 0]), 0, 3)
    [(0, 0), (1, 0), (0, 2), (2, 0), (1, 2), (2, 2)]
    """
    out, back = level, depth - 1 - level
    order: list[tuple[int, int]] = []
    for one in np.unique(step).tolist():
        mine = np.flatnonzero(step == one).tolist()
        if out == back:
            order += [(at, out) for at in mine]
            continue
        order.append((mine[0], out))
        for at, following in pairwise(mine):
            order += [(following, out), (at, back)]
        order.append((mine[-1], back))
    return order
