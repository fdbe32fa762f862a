"""The bytes that an operator moves at least: every input and its output, once each.

In: a graph's operators. Out: bytes per operator, NaN where shapes do not tell.
"""

from __future__ import annotations

import json
import math
import re
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from foretrace.transforms.costs.activations import BYTES, WIDE
from foretrace.transforms.costs.operators import parse_shapes

if TYPE_CHECKING:
    import numpy.typing as npt

    from foretrace.graph.model import Graph
    from foretrace.transforms.costs.model_flops import Products

    Floats = npt.NDArray[np.float64]

WIDTHS = {**BYTES, "bool": 1, "unsigned char": 1, "signed char": 1, "short": 2, "int": 4}
FP8 = "Float8"
PARTLY = re.compile(r"^(?!aten::)|index|embedding|gather|scatter|select|slice|narrow|cache|_put")
"""Operators that may read only parts of their inputs, and those of libraries, which may as well."""


def moved_bytes(graph: Graph, products: Products) -> Floats:
    """Return the least bytes that each operator moves.

    The output of a product follows from its operations; any other output is as large as the
    largest input, whose type it has.
    """
    operators = graph.operators
    size = np.full(len(operators), np.nan)
    columns = (operators[name].astype(object) for name in ("name", "shapes", "dtypes"))
    for row, (name, shapes, dtypes) in enumerate(zip(*columns, strict=True)):
        if not isinstance(shapes, str) or (PARTLY.search(str(name)) and not products.kind[row]):
            continue
        flops = float(products.flops[row]) if products.kind[row] == "gemm" else 0.0
        size[row] = _least_bytes(str(name), shapes, str(dtypes), flops)
    return size


@lru_cache(maxsize=100_000)
def _least_bytes(name: str, shapes: str, dtypes: str, flops: float) -> float:
    """Return the least bytes of one operator; NaN without tensors.

    >>> _least_bytes("aten::add", "[[4,8],[4,8],[]]", '["float","float","Scalar"]', 0.0)
    384.0
    >>> _least_bytes("aten::copy_", "[[4,8],[4,8],[]]", '["float","c10::Half",""]', 0.0)
    192.0
    >>> _least_bytes("aten::mm", "[[4,8],[8,2]]", '["float","float"]', 128.0)
    224.0
    """
    widths = _widths(dtypes)
    tensors = [
        (math.prod(shape), widths[at] if at < len(widths) else WIDE, shape)
        for at, shape in enumerate(parse_shapes(shapes))
        if shape
    ]
    if not tensors:
        return math.nan
    read = float(sum(count * width for count, width, _ in tensors))
    if name.endswith("::copy_"):
        return read  # its first input is the output
    count, width, shape = max(tensors, key=lambda each: each[0])
    if flops > 0:
        at = next((i for i, each in enumerate(tensors) if len(each[2]) > 1), 0)
        count, width, shape = tensors[at]
        return read + flops / 2 / max(shape[-1], 1) * width
    return read + count * width


@lru_cache(maxsize=100_000)
def _widths(dtypes: str) -> tuple[int, ...]:
    """Return the bytes per element of each input.

    >>> _widths('["c10::BFloat16","float",""]')
    (2, 4, 4)
    """
    try:
        names = json.loads(dtypes)
    except (ValueError, RecursionError):
        return ()
    if not isinstance(names, list):
        return ()
    return tuple(1 if FP8 in str(name) else WIDTHS.get(str(name), WIDE) for name in names)
