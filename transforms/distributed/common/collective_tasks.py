"""The collectives that a graph of a job of several workers holds: which they are.

In: a graph, recorded or made by `ddp` and its like. Out: rows of tasks by kind.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from foretrace.errors import TransformError

if TYPE_CHECKING:
    from foretrace.graph.model import Graph
    from foretrace.transforms.edit.columns import Rows

_KINDS = (
    ("reduce_scatter", re.compile(r"reduce_?scatter", re.IGNORECASE)),
    ("all_reduce", re.compile(r"all_?reduce", re.IGNORECASE)),
    ("all_gather", re.compile(r"all_?gather", re.IGNORECASE)),
    ("all_to_all", re.compile(r"all_?to_?all", re.IGNORECASE)),
    ("broadcast", re.compile(r"broadcast", re.IGNORECASE)),
)
"""Kind of a collective by the name of its task, recorded or predicted; the first that fits."""


@lru_cache(maxsize=4096)
def kind_of(name: str) -> str | None:
    """Return the kind of collective that a task of this name runs; ``None`` for anything else.

    >>> kind_of("ncclDevKernel_AllReduce_Sum_f32_RING_LL"), kind_of("gemm")
    ('all_reduce', None)
    """
    return next((kind for kind, pattern in _KINDS if pattern.search(name)), None)


def kinds_of(graph: Graph) -> list[str | None]:
    """Return the kind of collective of every task; ``None`` for tasks that are none."""
    column = graph.tasks["name"].array
    is_transfer = (graph.tasks["kind"] == "collective").to_numpy()
    return [
        kind_of(str(column.categories[code])) if transfers and code >= 0 else None
        for code, transfers in zip(column.codes.tolist(), is_transfer.tolist(), strict=True)
    ]


def collectives(graph: Graph, kind: str, what: str) -> Rows:
    """Return the tasks that run collectives of *kind*, in order of rows.

    Raises
    ------
    TransformError
        There are none; *what* is the what-if that needs them.
    """
    rows = np.flatnonzero([each == kind for each in kinds_of(graph)])
    if not len(rows):
        raise TransformError(
            f"nothing to change: no {kind} in this graph; put ddp(workers=..., cluster=...) before "
            f"{what}"
        )
    return rows
