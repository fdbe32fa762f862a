"""What the stages of a pipeline hand on, and which share of the parameters each of them has.

In: the graph of one rank and its cut. Out: bytes and shares.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from foretrace.errors import TransformError
from foretrace.transforms.costs.activations import element_bytes
from foretrace.transforms.costs.operators import parse_shapes
from foretrace.transforms.distributed.common.gradients import find_gradients
from foretrace.transforms.distributed.pipeline.partition import FIRST
from foretrace.transforms.edit.columns import is_in
from foretrace.transforms.edit.parameters import positive
from foretrace.transforms.edit.select import on_device

if TYPE_CHECKING:
    import numpy.typing as npt

    from foretrace.graph.model import Graph
    from foretrace.transforms.distributed.pipeline.partition import Cut

MB = 1e6


def boundary_bytes(graph: Graph, cut: Cut, activation_mb: float | None = None) -> list[int]:
    """Return the bytes of one batch that each piece but the first takes from the one before it.

    They are those of the first tensor that its first operator reads. *activation_mb* (10^6 bytes)
    goes before.

    Raises
    ------
    TransformError
        The recording has no shape for it.
    """
    boundaries = range(1, cut.pieces)
    if activation_mb is not None:
        positive("activation_mb", activation_mb)
        return [round(activation_mb * MB) for _ in boundaries]
    return [_read_first(graph, cut, piece) for piece in boundaries]


def _read_first(graph: Graph, cut: Cut, piece: int) -> int:
    tasks, operators = graph.tasks, graph.operators
    here = (cut.part == cut.of(piece, "forward")) & (tasks["operator"].to_numpy() >= 0)
    rows = np.flatnonzero(here & ~on_device(graph) & (tasks["step"].to_numpy() == 0))
    rows = rows[np.argsort(tasks["start_ns"].to_numpy()[rows], kind="stable")]
    parent = operators["parent"].to_numpy()
    for row in rows.tolist():
        chain = [int(tasks["operator"].iat[row])]
        while parent[chain[-1]] >= 0:
            chain.append(int(parent[chain[-1]]))
        for operator in reversed(chain):
            text = operators["shapes"].iat[operator]
            shapes = [s for s in parse_shapes(text) if s] if isinstance(text, str) else []
            if shapes:
                return math.prod(shapes[0]) * element_bytes(str(operators["dtypes"].iat[operator]))
    raise TransformError(
        f"the recording tells no shape of what goes into {cut.begins[piece]!r}; give its size for "
        "one batch as activation_mb=..."
    )


def parameter_shares(graph: Graph, cut: Cut) -> tuple[npt.NDArray[np.float64], int | None]:
    """Return the share of the parameters' bytes in each piece, and their sum.

    Where the recording does not tell sizes, the shares are those of the backward pass's time, and
    the sum is unknown.
    """
    try:
        gradients = [each for each in find_gradients(graph, no_sync=True) if each.step == 0]
    except TransformError:
        gradients = []
    sizes = np.zeros(cut.pieces)
    for gradient in gradients:
        part = cut.part[gradient.row]
        if part >= FIRST:
            sizes[(part - FIRST) // 2] += gradient.bytes
    if sizes.any():
        return sizes / sizes.sum(), sum(each.bytes for each in gradients)
    backward = is_in(graph.tasks["phase"], "backward") & (cut.part >= FIRST)
    work = graph.tasks["work_ns"].to_numpy()[backward]
    times = np.bincount((cut.part[backward] - FIRST) // 2, weights=work, minlength=cut.pieces)
    return times / max(times.sum(), 1), None
