"""Layers of a model whose trace names no modules: parts of the passes that take equally long.

In: a graph, and how many layers its user says the model has. Out: the graph with these modules.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from foretrace.errors import TransformError
from foretrace.transforms.edit.columns import Rows, is_in
from foretrace.transforms.edit.parameters import whole
from foretrace.transforms.edit.provenance import add_note
from foretrace.transforms.edit.select import has_device, launch_edges, on_device

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

MOST_LAYERS = 100_000


def with_layers(graph: Graph, layers: int | None, asked: str) -> Graph:
    """Return *graph* with modules "0", "1", ... if *layers* says how many; as it is without.

    Forward runs through them in order, backward in reverse order, each for as long as the others.

    Raises
    ------
    TransformError
        The trace names modules itself, or names none and *layers* is not given to *asked*.

    Examples
    --------
    >>> from foretrace.graph.literal import literal
    >>> rows = [("f", "host", 0, 5, "forward")] * 4 + [("b", "host", 0, 9, "backward")] * 2
    >>> with_layers(literal(rows), 2, "fsdp").tasks["module"].tolist()
    ['0', '0', '1', '1', '1', '0']
    """
    names_modules = bool(graph.tasks["module"].notna().any())
    if layers is None:
        if names_modules:
            return graph
        raise TransformError(
            f"this trace names no modules; give {asked} the number of the model's layers, taken to "
            "last equally long, as in layers=24 (with_stack=True of torch.profiler records modules)"
        )
    if names_modules:
        raise TransformError(f"layers={layers!r}: this trace names modules itself; leave it out")
    count = whole("layers", layers, 1)
    if count > MOST_LAYERS:
        raise TransformError(f"layers={layers!r} is out of range; give at most {MOST_LAYERS:,}")
    layer = np.full(len(graph.tasks), -1, np.int64)
    for phase in ("forward", "backward"):
        for rows, load in _passes(graph, phase):
            done = np.cumsum(load) - load / 2
            place = np.minimum((done / max(load.sum(), 1) * count).astype(np.int64), count - 1)
            layer[rows] = place if phase == "forward" else count - 1 - place
    by = launch_edges(graph)
    launched = on_device(graph) & (by >= 0)
    layer[launched] = layer[graph.edges["src"].to_numpy()[by[launched]]]
    module = pd.Categorical.from_codes(layer, [str(number) for number in range(count)])
    return add_note(
        replace(graph, tasks=graph.tasks.assign(module=module)),
        f"{asked}: the model is taken to have {count} layers that last equally long",
    )


def _passes(graph: Graph, phase: str) -> list[tuple[Rows, Rows]]:
    """Return per step the host tasks of *phase* in order, and the work of each or what it launched.

    Work is in ns.
    """
    tasks, device = graph.tasks, on_device(graph)
    work = tasks["work_ns"].to_numpy().astype(np.float64)
    if has_device(graph):
        by = launch_edges(graph)
        launched = np.flatnonzero(device & (by >= 0))
        call = graph.edges["src"].to_numpy()[by[launched]]
        work = np.bincount(call, weights=work[launched], minlength=len(tasks))
    start, step = (tasks[column].to_numpy() for column in ("start_ns", "step"))
    rows = np.flatnonzero(is_in(tasks["phase"], phase) & ~device & (step >= 0))
    rows = rows[np.lexsort((rows, start[rows], step[rows]))]
    each = (rows[step[rows] == one] for one in np.unique(step[rows]))
    return [(mine, work[mine]) for mine in each]
