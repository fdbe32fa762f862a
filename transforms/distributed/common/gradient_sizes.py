"""How large the gradients of a job are, where no operator of its trace says so.

In: a graph, and what its user gives. Out: one size per parameter, and where it is known from.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foretrace.errors import TransformError
from foretrace.transforms.costs.update_sizes import read_update_sizes
from foretrace.transforms.edit.parameters import positive

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foretrace.graph.model import Graph

MB = 1_000_000
MOST_MB = 1_000_000_000
"""No model has a petabyte of parameters: 10^14 of them take 400 TB."""
WIDTH = 4
"""Bytes of an element where nothing tells: optimizers keep parameters in fp32."""
UNKNOWN_PIECES = 32
"""Gradients that a known total is cut into where a trace shows no single ones: enough that no piece
is a large share of a bucket, few enough to be cheap (a convention, no measurement)."""
SOURCES = {
    "shapes": "from the operators' shapes",
    "model": "as the recorder saw the model",
    "given": "given",
    "copies": "from the copies out of DDP's buckets",
    "buckets": "from the bytes of the recorded collectives",
    "grids": "from the grids of the optimizer's kernels",
}
"""Where sizes are known from, as sentences say it."""


class GradientSize(NamedTuple):
    """Size of one parameter's gradient; ``name`` and ``shape`` where they are known.

    Of a sparse one ``bytes`` are those of ``rows`` rows, each named by ``dims`` indices.
    """

    name: str | None
    bytes: int
    shape: tuple[int, ...]
    width: int
    rows: int = 0
    dims: int = 1


def read_given(
    parameters: Sequence[float] | None, gradient_mb: float | None, pieces: int
) -> list[GradientSize] | None:
    """Return the sizes that the user gave; a sum is cut into so many *pieces*.

    Raises
    ------
    TransformError
        Both were given, or sizes that no model has.
    """
    if parameters is not None and gradient_mb is not None:
        raise TransformError("give either parameters=[MB, ...] or gradient_mb=..., not both")
    if gradient_mb is not None:
        positive("gradient_mb", gradient_mb)
        pieces = pieces or UNKNOWN_PIECES
        parameters = [gradient_mb / pieces] * pieces
    if parameters is None:
        return None
    if not isinstance(parameters, list | tuple) or not parameters:
        raise TransformError(f"parameters={parameters!r} is no list; give parameters=[MB, ...]")
    each = [positive("parameters", size) for size in parameters]
    if sum(each) > MOST_MB:
        raise TransformError(f"gradients of {sum(each):.3g} MB: give at most {MOST_MB:,} MB in all")
    return [GradientSize(None, max(1, round(size * MB)), (), WIDTH) for size in each]


def read_recorded(graph: Graph) -> list[GradientSize] | None:
    """Return name and size of the model's parameters as the recorder saw them, in their order."""
    seen = graph.meta.extra.get("parameters")
    if not seen:
        return None
    return [
        GradientSize(str(name), math.prod(shape) * int(width), tuple(shape), int(width))
        for name, shape, width in seen
    ]


def read_grids(graph: Graph, pieces: int) -> list[GradientSize] | None:
    """Return the sizes that the optimizer's kernels tell, in the model's order.

    *pieces* are the parameters of the job, 0 where nothing counts them; a sum is cut into them.
    """
    update = read_update_sizes(graph, pieces or None)
    if update is None:
        return None
    elements = np.array(update.elements, np.float64)
    if update.is_sum:
        elements = np.repeat(elements / (pieces or UNKNOWN_PIECES), pieces or UNKNOWN_PIECES)
    each = np.maximum(np.rint(elements), 1).astype(np.int64) * update.width
    return [GradientSize(None, size, (), update.width) for size in each.tolist()]


def refuse_unknown_sizes() -> TransformError:
    """Return the error about a trace that tells no sizes: it names what to give."""
    return TransformError(
        "this trace does not tell how large the gradients are; give their sum in MB, four bytes a "
        "parameter, as in gradient_mb=100"
    )
