"""How long a job's sequences are, and how much of its memory grows with their square.

In: a graph. Out: `Sequence`, or None where no attention with shapes was recorded.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foretrace.transforms.costs.activations import activations
from foretrace.transforms.costs.operators import parse_shapes
from foretrace.transforms.edit.columns import is_in, matches

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

FOUR = 4
"""Dimensions of a query: batch, heads, length, width."""


class Sequence(NamedTuple):
    """The usual length, and the share of the activations that grows with its square."""

    length: int
    squared: float


def find_sequence(graph: Graph) -> Sequence | None:
    """Return the length of the sequences that attention works on.

    Examples
    --------
    >>> from foretrace.graph.literal import literal
    >>> query = "[[2,4,64,16],[2,4,64,16],[2,4,64,16]]"
    >>> graph = literal([("fmha", "kernel", 0, 9, "forward")], operators={
    ...     "name": ["aten::scaled_dot_product_attention"], "parent": [-1],
    ...     "phase": ["forward"], "shapes": [query]})
    >>> find_sequence(graph)
    Sequence(length=64, squared=0.0)
    """
    operators = graph.operators
    if not len(operators):
        return None
    named = matches(operators["name"], r"::scaled_dot_product_attention$|::_?softmax$")
    named &= operators["shapes"].notna().to_numpy() & is_in(operators["phase"], "forward")
    shapes = [parse_shapes(str(text)) for text in operators["shapes"][named]]
    found = Counter(
        each[0][2] for each in shapes if each and len(each[0]) == FOUR and each[0][2] > 1
    )
    if not found:
        return None
    length = found.most_common(1)[0][0]
    return Sequence(length, _squared_share(graph, length))


def _squared_share(graph: Graph, length: int) -> float:
    """Return the share of the kept bytes whose operator has a tensor of length × length."""
    kept = activations(graph)
    sizes = np.nan_to_num(kept.size)
    own = graph.tasks["operator"].to_numpy()[kept.forward]
    shapes, parent = graph.operators["shapes"], graph.operators["parent"].to_numpy()
    squared = 0.0
    for size, row in zip(sizes.tolist(), own.tolist(), strict=True):
        while row >= 0 and not isinstance(shapes.iat[row], str):
            row = int(parent[row])  # noqa: PLW2901 - the operator around it has the shapes
        first = parse_shapes(shapes.iat[row])[:1] if row >= 0 else ()
        squared += size * any(shape[-2:] == (length, length) for shape in first)
    return float(squared / sizes.sum()) if sizes.sum() else 0.0
