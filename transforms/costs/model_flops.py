"""How many operations the products of a step need, by the shapes of their operators.

In: a graph. Out: per operator its FLOPs as torch's FlopCounter counts them: 2 for a multiplication
with its addition, products, convolutions and attention alone, attention in full whether or not it
is causal. What is computed again for the backward pass is told apart: it is no work of the model's.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from foretrace.transforms.costs.operators import parse_shapes
from foretrace.transforms.edit.columns import Mask, Rows, is_in

if TYPE_CHECKING:
    import numpy.typing as npt

    from foretrace.graph.model import Graph

    Floats = npt.NDArray[np.float64]
    Shape = tuple[int, ...]

GEMM = re.compile(r"::(linear|addmm|mm|bmm|baddbmm|matmul|_scaled_mm)$")
CONV = re.compile(r"::(_?convolution|conv[123]d|conv_transpose[123]d|\w+_convolution\w*)$")
CONV_BACKWARD = re.compile(r"convolution\w*_backward$")
ATTENTION = re.compile(r"::_?(scaled_dot_product_\w*attention\w*|(flash|efficient)_attention\w*)$")
BACKWARD = re.compile(r"_backward$")
COMPOSITE = re.compile(r"::(linear|addmm|matmul|conv[123]d|_?convolution|scaled_dot_product_\w+)$")
"""What only a forward pass calls: in the backward phase it is computed again."""
IMAGE = 4
"""Channels up to which the input of a convolution is taken for data, which have no gradient."""
AHEAD = 64
"""Operators behind a convolution among which its output is looked for."""


@dataclass(frozen=True)
class Products:
    """The products among a graph's operators, one entry per operator.

    ``owner`` is the outermost product that an operator is part of (−1: none), ``kind`` "gemm",
    "conv" or "attention" of owners, ``flops`` theirs (NaN where shapes do not tell, 0 elsewhere);
    ``again`` are those that compute for a second time.
    """

    owner: Rows
    kind: npt.NDArray[np.str_]
    flops: Floats
    again: Mask


def count_products(graph: Graph) -> Products:
    """Count the operations of every product of *graph*.

    Examples
    --------
    >>> from foretrace.graph.literal import literal
    >>> graph = literal([("gemm", "kernel", 0, 9, "forward")], operators={
    ...     "name": ["aten::linear", "aten::addmm"], "parent": [-1, 0],
    ...     "shapes": ["[[8,16],[4,16],[4]]", "[[4],[8,16],[16,4]]"]})
    >>> count_products(graph).flops.tolist(), count_products(graph).owner.tolist()
    ([1024.0, 0.0], [0, 0])
    """
    operators = graph.operators
    names = [str(name) for name in operators["name"]]
    parent = operators["parent"].to_numpy().astype(np.int64)
    shapes = [parse_shapes(text) if isinstance(text, str) else () for text in operators["shapes"]]
    kind = np.array([_kind(name) for name in names] or [""], "<U9")[: len(names)]
    owner = _outermost(kind != "", parent)
    mine = owner == np.arange(len(names))
    backward = is_in(operators["phase"], "backward")
    outputs = _outputs(names, shapes, parent, kind, mine)
    flops = np.zeros(len(names))
    for row in np.flatnonzero(mine).tolist():
        flops[row] = _flops(names[row], kind[row], shapes[row], outputs.get(row))
    again = mine & backward & np.array([COMPOSITE.search(n) is not None for n in names], bool)
    return Products(owner, kind, flops, again)


@lru_cache(maxsize=100_000)
def _kind(name: str) -> str:
    if CONV.search(name) or CONV_BACKWARD.search(name):
        return "conv"
    if ATTENTION.search(name):
        return "attention"
    return "gemm" if GEMM.search(name) else ""


def _outermost(product: Mask, parent: Rows) -> Rows:
    """Return, per operator, the outermost product around it or itself; parents come first."""
    owner = np.where(product, np.arange(len(parent)), -1)
    for row, above in enumerate(parent.tolist()):
        if above >= 0 and owner[above] >= 0:
            owner[row] = owner[above]
    return owner


def _flops(name: str, kind: str, shapes: tuple[Shape, ...], output: Shape | None) -> float:
    tensors = [shape for shape in shapes if shape]
    if kind == "attention":
        return _attention_flops(tensors, backward=BACKWARD.search(name) is not None)
    if kind == "conv":
        return _convolution_flops(name, tensors, output)
    return _matmul_flops(name, tensors)


def _matmul_flops(name: str, tensors: list[Shape]) -> float:
    """Return what a product of two tensors takes.

    >>> _matmul_flops("aten::matmul", [(2, 3, 4), (4, 5)])
    240.0
    >>> _matmul_flops("aten::addmm", [(5,), (3, 4), (4, 5)])
    120.0
    """
    called = name.rsplit("::", 1)[-1]
    operands = tensors[1:] if called in ("addmm", "baddbmm") and len(tensors) > 2 else tensors  # noqa: PLR2004 - a bias comes first
    if len(operands) < 2:  # noqa: PLR2004
        return math.nan
    left, right = operands[:2]
    if called == "linear":
        right = right[::-1]
    columns = right[-1] if len(right) > 1 else 1
    rows = left[-2] if len(left) > 1 else 1
    batch = max(math.prod(left[:-2]), math.prod(right[:-2]))
    return 2.0 * batch * rows * left[-1] * columns


def _convolution_flops(name: str, tensors: list[Shape], output: Shape | None) -> float:
    """Return what a convolution takes: forward once, backward for its input and its weight.

    >>> _convolution_flops("aten::conv2d", [(1, 3, 8, 8), (4, 3, 3, 3)], (1, 4, 8, 8))
    13824.0
    """
    if BACKWARD.search(name):
        operands = _backward_operands(name, tensors)
        if operands is None:
            return math.nan
        data, weight, output = operands
        return _once(data, weight, output) * (1 if data[1] <= IMAGE else 2)
    if len(tensors) < 2 or output is None:  # noqa: PLR2004
        return math.nan
    return _once(tensors[0], tensors[1], output)


def _once(data: Shape, weight: Shape, output: Shape) -> float:
    """Return 2 × output positions × weight; a transposed one visits the weight per input."""
    positions = math.prod(output) // max(output[1], 1)
    if weight[0] != output[1]:
        positions = math.prod(data) // max(data[1], 1)
    return 2.0 * positions * math.prod(weight)


def _backward_operands(name: str, tensors: list[Shape]) -> tuple[Shape, Shape, Shape] | None:
    """Return input, weight and output of a convolution's backward operator."""
    if len(tensors) < 3:  # noqa: PLR2004
        return None
    first, second, weight = tensors[:3]
    if len({len(first), len(second), len(weight)}) > 1:
        return None
    old = not name.endswith("::convolution_backward")  # until 2021 the input came first
    data, output = (first, second) if old else (second, first)
    return data, weight, output


def _attention_flops(tensors: list[Shape], *, backward: bool) -> float:
    """Return what attention takes: two products forward, and four backward, none of them again.

    >>> _attention_flops([(1, 2, 8, 4), (1, 2, 8, 4), (1, 2, 8, 4)], backward=False)
    2048.0
    """
    four = [shape for shape in tensors if len(shape) == 4]  # noqa: PLR2004 - batch, heads, length, width
    at = 1 if backward else 0
    if len(four) < 3 + at:
        return math.nan
    query, key, value = four[at : at + 3]
    products = query[3] + value[3]
    forward = 2.0 * query[0] * query[1] * query[2] * key[2] * products
    return 2 * forward if backward else forward


def _outputs(
    names: list[str],
    shapes: list[tuple[Shape, ...]],
    parent: Rows,
    kind: npt.NDArray[np.str_],
    mine: Mask,
) -> dict[int, Shape]:
    """Return the outputs of forward convolutions: as backward has them, else as read next."""
    known: dict[tuple[Shape, Shape], Shape] = {}
    for row in np.flatnonzero(mine & (kind == "conv")).tolist():
        if BACKWARD.search(names[row]):
            operands = _backward_operands(names[row], [s for s in shapes[row] if s])
            if operands is not None:
                known[operands[:2]] = operands[2]
    outputs = {}
    for row in np.flatnonzero(mine & (kind == "conv")).tolist():
        tensors = [shape for shape in shapes[row] if shape]
        if BACKWARD.search(names[row]) or len(tensors) < 2:  # noqa: PLR2004
            continue
        data, weight = tensors[:2]
        found = known.get((data, weight)) or _read_next(shapes, parent, row, data, weight)
        if found is not None:
            outputs[row] = found
    return outputs


def _read_next(
    shapes: list[tuple[Shape, ...]], parent: Rows, row: int, data: Shape, weight: Shape
) -> Shape | None:
    """Return the first tensor that a later operator reads and that may be the output of *row*."""
    for later in range(row + 1, min(row + AHEAD, len(shapes))):
        first = next((shape for shape in shapes[later] if shape), ())
        beside = parent[later] < row
        if beside and len(first) == len(data) and first[:2] == (data[0], weight[0]):
            return first
    return None
