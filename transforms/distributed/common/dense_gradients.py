"""Gradients for what exchanges dense ones once per step; a job with others is refused.

In: a graph. Out: its gradients, or an error that names what is sparse, or counts the passes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.errors import TransformError
from foretrace.transforms.distributed.common.gradients import find_gradients

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from foretrace.graph.model import Graph
    from foretrace.transforms.distributed.common.gradients import Gradient


def find_once(
    graph: Graph,
    what: str,
    *,
    parameters: Sequence[float] | None = None,
    gradient_mb: float | None = None,
) -> list[Gradient]:
    """Return the gradients of one rank where a step finishes dense ones once, as *what* needs it.

    Raises
    ------
    TransformError
        As `find_gradients`, or there are several backward passes or sparse gradients.
    """
    found = find_gradients(graph, parameters=parameters, gradient_mb=gradient_mb, no_sync=True)
    require_dense(found, f"{what} exchanges dense gradients")
    if passes := max(each.turn for each in found):
        raise TransformError(
            f"{what} exchanges gradients once per step, and a step of this job has {passes + 1} "
            "backward passes with gradients of their own; record one of them as a step, or ask ddp"
        )
    return found


def require_dense(gradients: Iterable[Gradient], what: str) -> None:
    """Refuse sparse gradients.

    Raises
    ------
    TransformError
        There are some; *what* cannot be said of them.
    """
    names = [each.name or each.module or "?" for each in gradients if each.rows]
    if names:
        raise TransformError(
            f"{what}, and {', '.join(dict.fromkeys(names))} has a sparse gradient "
            "(sparse=True); record the job with dense ones"
        )
