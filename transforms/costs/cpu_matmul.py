"""What products cost a CPU in another precision, from the machine's probed rates.

Where 16-bit products are emulated, each kind of product has a rate of its own, far below what
memory or vector units would set; their time is then flops over that rate. Where the CPU has units
for them, the recorded time is kept and only the ratio of the two rates applied.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from foretrace.transforms.costs.operators import flops, parse_shapes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from foretrace.graph.model import Graph

    Shape = tuple[int, ...]
    Rates = Mapping[str, Mapping[str, Sequence[Sequence[float]]]]

MATRIX = ("mm", "addmm", "bmm", "baddbmm", "linear", "mkldnn_linear")


def matmul_ns(graph: Graph, rates: Rates, precision: str) -> npt.NDArray[np.float64]:
    """Time of each operator's own product in *precision*, in ns; NaN where it is no known product.

    Parameters
    ----------
    graph
        Its operators carry shapes.
    rates
        ``{kind: {precision: [[size, GFLOP/s], …]}}`` as the recorder probes them.
    precision
        "fp32" or "bf16".
    """
    operators = graph.operators
    names = [str(n).rsplit("::", 1)[-1] for n in operators["name"].cat.categories]
    texts = [str(t) for t in operators["shapes"].cat.categories]
    weights = _weights(operators, names, texts)
    backward = (operators["phase"] == "backward").to_numpy(bool)
    matmuls: dict[tuple[int, int, bool], Matmul | None] = {}
    counted = nearest(operators["parent"].to_numpy(), operators["flops"].to_numpy())
    result = np.full(len(operators), np.nan)
    keys = zip(
        operators["name"].cat.codes.tolist(),
        operators["shapes"].cat.codes.tolist(),
        backward.tolist(),
        strict=True,
    )
    for row, key in enumerate(keys):
        if key not in matmuls:
            text = texts[key[1]] if key[1] >= 0 else ""
            matmuls[key] = _read_matmul(names[key[0]], text, weights, backward=key[2])
        matmul = matmuls[key]
        if matmul is not None and matmul.kind.endswith("conv"):
            matmul = matmul.strided(counted[row])
        kind = "" if matmul is None else _probed_kind(matmul.kind, rates)
        if matmul is not None and kind in rates:
            rate = interpolate(rates[kind][precision], matmul.size)
            result[row] = matmul.flops / rate
    inner = _is_innermost(operators["parent"].to_numpy(), np.isfinite(result))
    return np.where(inner, result, np.nan)


class Matmul(NamedTuple):
    """One product: which of the probed kinds it is, its flops, and its size as probed."""

    kind: str
    flops: float
    size: float

    def strided(self, counted: float) -> Matmul:
        """Return a convolution with the flops that torch counted, which know its stride."""
        if not counted > 0:
            return self
        return Matmul(self.kind, counted, self.size * min(1.0, counted / self.flops))


def _probed_kind(kind: str, rates: Rates) -> str:
    """Return *kind*, or that of which it is one where earlier recorders did not tell them apart.

    >>> _probed_kind("depthwise_conv", {"conv": {}}), _probed_kind("linear", {})
    ('conv', 'linear')
    """
    return kind if kind in rates else kind.rpartition("wise_")[2]


def _read_matmul(name: str, text: str, weights: set[Shape], *, backward: bool) -> Matmul | None:
    shapes = [s for s in parse_shapes(text) if s]
    if name in MATRIX:
        work = flops(f"aten::{name.removeprefix('mkldnn_')}", text)
        operands = [s for s in shapes if len(s) > 1][-2:]
        if work is None or len(operands) < 2:  # noqa: PLR2004 - a product has two
            return None
        return _matrix(operands, work, weights, backward=backward)
    if "convolution" in name and len(shapes) > 1 and len(shapes[0]) > 3:  # noqa: PLR2004 - images
        return _convolution(name, shapes)
    return None


def nearest(
    parent: npt.NDArray[np.int64], value: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Per operator: its own value, else that of the nearest operator around it that has one."""
    nearest_value, up = value.copy(), parent.copy()
    while True:
        empty = np.flatnonzero(np.isnan(nearest_value) & (up >= 0))
        if not len(empty):
            return nearest_value
        nearest_value[empty] = value[up[empty]]
        up[empty] = parent[up[empty]]


def _matrix(operands: list[Shape], work: float, weights: set[Shape], *, backward: bool) -> Matmul:
    left, right = operands
    columns = float(right[-1])
    if not backward:
        return Matmul("linear", work, columns)
    if (left[-2], right[-1]) in weights:
        return Matmul("weight_gradient", work, columns)
    return Matmul("input_gradient", work, columns)


def _convolution(name: str, shapes: list[Shape]) -> Matmul:
    """Return a convolution; forward as if its output were as large as its input."""
    if "backward" in name:
        gradient, image, weight = shapes[:3]
        pixels = float(math.prod(gradient[2:]))
        work = 4.0 * gradient[0] * pixels * math.prod(weight)
        return Matmul(f"{_form(image, weight)}conv_backward", work, pixels)
    image, weight = shapes[:2]
    pixels = float(math.prod(image[2:]))
    work = 2.0 * image[0] * pixels * math.prod(weight)
    return Matmul(f"{_form(image, weight)}conv", work, pixels)


def _form(image: Shape, weight: Shape) -> str:
    """Return what kind of convolution has this *weight*: libraries treat each in its own way."""
    if math.prod(weight[2:]) == 1:
        return "pointwise_"
    return "depthwise_" if weight[1] == 1 and image[1] > 1 else ""


def interpolate(points: Sequence[Sequence[float]], size: float) -> float:
    """Rate at *size* on a log-log line through the probed points, flat outside them.

    Examples
    --------
    >>> interpolate([[100, 1.0], [10_000, 4.0]], 1_000), interpolate([[100, 1.0]], 9)
    (2.0, 1.0)
    """
    sizes, rates = np.log([[max(s, 1.0), r] for s, r in points]).T
    return round(float(np.exp(np.interp(math.log(max(size, 1.0)), sizes, rates))), 9)


def _weights(operators: Any, names: list[str], texts: list[str]) -> set[Shape]:
    """Shapes of the second operands of forward products, both ways round."""
    forward = (operators["phase"] != "backward").to_numpy(bool)
    wanted = {i for i, name in enumerate(names) if name in MATRIX}
    pairs = zip(
        operators["name"].cat.codes[forward], operators["shapes"].cat.codes[forward], strict=True
    )
    shapes: set[Shape] = set()
    for name, text in set(pairs):
        if name in wanted and text >= 0:
            tensors = [s for s in parse_shapes(texts[text]) if len(s) > 1]
            if len(tensors) > 1:
                shapes |= {tensors[-1][-2:], tensors[-1][-2:][::-1]}
    return shapes


def _is_innermost(
    parent: npt.NDArray[np.int64], is_matmul: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """Whether an operator is the innermost product: an outer one's work is counted inside."""
    inner = np.ones(len(parent), bool)
    above = parent[is_matmul & (parent >= 0)]
    while len(above):
        inner[above] = False
        above = parent[above]
        above = np.unique(above[above >= 0])
    return inner
