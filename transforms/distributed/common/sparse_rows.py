"""Gradients that are rows of a table: which ones, and how many rows a worker sends.

In: the operators of a recording and what the recorder counted. Out: rows by the operator that
accumulates the gradient. ``nn.Embedding(sparse=True)`` makes them: a gradient is then a list of
indices and as many rows, of which one looked up twice is sent once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foretrace.transforms.costs.assumed import Assumed
from foretrace.transforms.costs.cpu_matmul import nearest
from foretrace.transforms.costs.operators import ACCUMULATE, parse_shapes
from foretrace.transforms.edit.columns import is_in

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

DISTINCT = Assumed(
    "distinct rows of a sparse gradient, over those of even draws from its table",
    *(1.0, 0.2, 1.0),
    "which indices a batch holds is in no operator's shape; popular rows are looked up again and "
    "again; a recorder that sees the gradient counts them",
    more_is_longer=True,
)
MAKES = "aten::_sparse_coo_tensor_unsafe"
READS = "aten::_indices"
INDEX_BYTES = 8
"""Indices are int64."""
COUNTED = "sparse_gradients"
"""Key of the recorder's count in `TraceMeta.extra`: [name, distinct rows]."""


class SparseRows(NamedTuple):
    """Rows that a gradient has, a repeated one again; 0: unknown. ``dims`` indices name a row."""

    rows: int
    dims: int = 1


def find_sparse(graph: Graph) -> dict[int, SparseRows]:
    """Return, by row of the operator that accumulates it, what is known of each sparse gradient.

    That operator takes a sparse gradient apart, and puts it together again from its parts.
    """
    operators = graph.operators
    parts = is_in(operators["name"], MAKES, READS)
    if not parts.any():
        return {}
    number = np.arange(len(operators), dtype=np.float64)
    number[~is_in(operators["name"], ACCUMULATE)] = np.nan
    inside = nearest(operators["parent"].to_numpy().astype(np.int64), number)
    made = is_in(operators["name"], MAKES)
    texts = operators["shapes"].astype(object)
    found: dict[int, SparseRows] = {}
    for row in np.flatnonzero(parts & np.isfinite(inside)).tolist():
        sizes = parse_shapes(str(texts.iat[row])) if made[row] else ()
        known = SparseRows(sizes[0][1], sizes[0][0]) if sizes and len(sizes[0]) > 1 else None
        accumulates = int(inside[row])
        found[accumulates] = known or found.get(accumulates, SparseRows(0))
    return found


def count_distinct(graph: Graph, name: str | None, seen: SparseRows, table: int) -> int:
    """Return how many of the rows *seen* of the parameter *name*, a *table* so long, differ.

    >>> from foretrace.graph.literal import literal
    >>> graph = literal([("a", "host", 0, 5, None)])
    >>> count_distinct(graph, None, SparseRows(100), 100)
    63
    """
    counted = dict(graph.meta.extra.get(COUNTED, ()))
    if name in counted:
        return int(counted[name])
    even = table * (1 - (1 - 1 / max(table, 1)) ** seen.rows)
    return max(1, round(DISTINCT.now() * even))
