"""The update of tables whose gradients are rows, once it gets the rows of all workers.

In: a graph and its gradients. Out: the graph with longer updates.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from foretrace.transforms.costs.cpu_matmul import nearest
from foretrace.transforms.costs.operators import parse_shapes
from foretrace.transforms.edit.columns import is_in
from foretrace.transforms.edit.primitives import scale

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foretrace.graph.model import Graph
    from foretrace.transforms.distributed.common.gradients import Gradient


def grow_updates(graph: Graph, gradients: Sequence[Gradient], workers: int) -> Graph:
    """Let the update of each table touch the rows of all *workers*, which draw them independently.

    Its operators are told by the shape of the table, or of the rows.
    """
    growth: dict[tuple[int, ...], float] = {}
    for each in gradients:
        if each.rows:
            table, row = math.prod(each.shape[: each.dims]), each.shape[each.dims :]
            all_rows = table * (1 - (1 - min(each.rows / table, 1.0)) ** workers)
            growth[each.shape] = growth[each.rows, *row] = all_rows / each.rows
    if not growth:
        return graph
    texts = graph.operators["shapes"].astype(object).tolist()
    number = np.full(len(texts), np.nan)
    for at in np.flatnonzero(is_in(graph.operators["phase"], "optimizer")).tolist():
        sizes = parse_shapes(texts[at]) if isinstance(texts[at], str) else ()
        number[at] = next((growth[size] for size in sizes if size in growth), np.nan)
    parents = graph.operators["parent"].to_numpy().astype(np.int64)
    factor = np.append(nearest(parents, number), np.nan)[graph.tasks["operator"].to_numpy()]
    where = np.isfinite(factor) & is_in(graph.tasks["phase"], "optimizer")
    return scale(graph, where, np.where(where, factor, 1.0), cost="roofline")
