"""What images laid out with channels last do to the operators of a CPU job: one factor per task.

Whole layers were timed alone, forward and backward, in both layouts, on one core of an EPYC (torch
2, fp32 and bf16; 32 to 128 channels, images of 16 to 56 pixels): a range is given where they vary.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from foretrace.transforms.costs.operators import parse_shapes

if TYPE_CHECKING:
    import numpy.typing as npt

    from foretrace.graph.model import Graph

CONVOLUTION = 0.85
"""0.56 (32 channels) to 0.95."""
POINTWISE = 0.98
"""0.97 to 1.03 in fp32."""
POINTWISE_16 = 0.5
"""0.49 to 0.61: in 16 bits a 1x1 convolution of images with channels first is slow."""
DEPTHWISE = 0.4
"""0.34 to 0.48."""
OTHERS = (
    (re.compile("batch_norm"), 0.58),  # 0.55 to 0.67
    (re.compile("group_norm"), 1.35),  # 1.21 to 2.0: its groups are no longer in one piece
    (re.compile(r"(max|avg)_?pool2d"), 0.17),  # 0.14 to 0.19
    (re.compile("upsample"), 0.2),  # 0.12 to 0.48
)
IMAGE = 4
"""Dimensions of a batch of images, and of a convolution's weight."""


def layout_factors(graph: Graph) -> npt.NDArray[np.float64]:
    """Return the factor of each task, by its innermost operator; 1 where the layout is nothing."""
    operators, is_16_bit = graph.operators, graph.state.autocast is not None
    if not len(operators):
        names = map(str, graph.tasks["name"])
        return np.array([_factor(name, "", is_16_bit) for name in names], np.float64)
    pairs = zip(map(str, operators["name"]), map(str, operators["shapes"]), strict=True)
    of_operator = np.array([_factor(*pair, is_16_bit) for pair in pairs], np.float64)
    operator = graph.tasks["operator"].to_numpy()
    factors: npt.NDArray[np.float64] = np.where(operator >= 0, of_operator[operator], 1.0)
    return factors


@lru_cache(maxsize=10_000)
def _factor(name: str, shapes: str, is_16_bit: bool) -> float:  # noqa: FBT001 - of one function
    """Return the factor of an operator with inputs of these *shapes*.

    >>> _factor("aten::mkldnn_convolution", "[[8,32,9,9],[32,1,7,7],[32]]", False)
    0.4
    >>> _factor("aten::native_group_norm", "[[8,32,9,9]]", False)
    1.35
    """
    for pattern, factor in OTHERS:
        if pattern.search(name):
            return factor
    if not re.search("conv(?!ert)", name):
        return 1.0
    images = [shape for shape in parse_shapes(shapes) if len(shape) == IMAGE]
    weight = images[-1] if len(images) > 1 else ()
    if weight[2:] == (1, 1):
        return POINTWISE_16 if is_16_bit else POINTWISE
    is_depthwise = bool(weight) and weight[1] == 1 and weight[0] > 1 and images[0][1] > 1
    return DEPTHWISE if is_depthwise else CONVOLUTION
