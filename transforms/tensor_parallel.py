"""Tensor parallelism (stub)."""
from __future__ import annotations
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from foretrace.graph.model import Graph
DEGREE = "tensor_parallel"


def degree_of(graph: Graph) -> int:
    """Return how many devices share each layer."""
    return int(graph.extra.get(DEGREE, 1))
