"""What framework operators do: their class, how autocast treats them, flops and bytes by shape.

Names are those of PyTorch's profiler (``aten::addmm``); shapes are the compact JSON of the
operator table.
"""

from __future__ import annotations

import json
import math
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from foretrace.transforms.edit.columns import of_category

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

OPERATOR_RULES = (
    ("optimizer", r"_fused_(adam|sgd|adagrad)|_foreach_|_amp_foreach"),
    ("attention", r"scaled_dot_product|_attention"),
    ("conv", r"conv(?!ert)"),
    ("gemm", r"::(add|ba?dd)?b?mm(_|$)|addmv|::mv$|linear|matmul|einsum|lstm|gru|rnn_layer|::dot$"),
    ("norm", r"batch_norm|layer_norm|group_norm|instance_norm|rms_norm"),
    ("softmax", r"softmax|cross_entropy|nll_loss"),
    ("embedding", r"embedding|index_select"),
    ("reduce", r"::(sum|mean|max|min|norm|any|all|argmax|cumsum|topk|sort|amax)$|pool"),
    ("copy", r"copy_|_to_copy|::to$|contiguous|clone|::cat$|stack|index|gather|scatter|pad"),
    ("pointwise", r"::(add|sub|mul|div|neg|exp|log|sqrt|pow|tanh|sigmoid|clamp|where|abs|rsqrt)"),
    ("pointwise", r"relu|gelu|silu|threshold|dropout|bernoulli|fill_|zero_|lerp|addc(mul|div)"),
    ("pointwise", r"_backward$|hardtanh|softplus|upsample|::(eq|ne|gt|lt|ge|le|bitwise)|masked"),
)
_RULES = tuple((name, re.compile(pattern)) for name, pattern in OPERATOR_RULES)

ACCUMULATE = "torch::autograd::AccumulateGrad"
"""Runs once per parameter in each backward pass; its input has the parameter's shape."""

MOST_SIZES, MOST_ELEMENTS = 64, 2**48
"""No tensor has more dimensions or elements."""
RELU = r"(?i)relu|clamp_min|threshold"
"""Operators and kernels that cut off at 0."""

AUTOCAST_LOW = re.compile(
    r"::(__matmul__|addbmm|addmm|addmv|addr|baddbmm|bmm|chain_matmul|linalg_multi_dot|mm|mv|linear"
    r"|matmul|prelu|einsum)$|conv(olution|\d|_t)|mkldnn_rnn|scaled_dot_product"
    r"|::(lstm|gru|rnn)(_\w*cell)?"
)
"""Operators that autocast runs in 16 bits (PyTorch's list, CPU and CUDA alike)."""

AUTOCAST_FP32 = re.compile(
    r"softmax|layer_norm|group_norm|_loss|cross_entropy|kl_div|cosine_similarity"
    r"|::(__r?pow__|__r(true)?div__|acos|asin|cosh|sinh|tan|erfinv|exp|expm1|log|log10|log1p|log2"
    r"|pow|reciprocal|rsqrt|softplus|sum|prod|cumsum|cumprod|norm|linalg_vector_norm|renorm"
    r"|dist|cdist|pdist)_?$"
)
"""Operators that autocast runs in fp32 on CUDA."""

AUTOCAST_PROMOTE = re.compile(
    r"::(addcdiv|addcmul|atan2|bilinear|cat|stack|cross|dot|grid_sampler|index_put|scatter_add"
    r"|tensordot)"
)
"""Operators that take the widest type among their inputs."""


def operator_class(name: str) -> str:
    """Return the class of an operator, "other" when no rule knows it.

    Examples
    --------
    >>> operator_class("aten::addmm"), operator_class("aten::mkldnn_convolution")
    ('gemm', 'conv')
    """
    return next((kind for kind, pattern in _RULES if pattern.search(name)), "other")


def autocast(name: str) -> str:
    """Return how autocast treats an operator: "low", "fp32", "promote" or "follow" its input.

    Examples
    --------
    >>> [autocast(f"aten::{name}") for name in ("addmm", "layer_norm", "cat", "relu")]
    ['low', 'fp32', 'promote', 'follow']
    """
    if AUTOCAST_LOW.search(name):
        return "low"
    if AUTOCAST_FP32.search(name):
        return "fp32"
    return "promote" if AUTOCAST_PROMOTE.search(name) else "follow"


def task_operator_classes(graph: Graph) -> npt.NDArray[np.str_]:
    """Return the class of each task's innermost operator, by operator or task name."""
    names = graph.tasks["name"]
    of_task = of_category(names, operator_class, "other")
    if not len(graph.operators):
        return of_task
    of_operator = of_category(graph.operators["name"], operator_class, "other")
    operator = graph.tasks["operator"].to_numpy()
    return np.where(operator >= 0, of_operator[operator], of_task)


@lru_cache(maxsize=100_000)
def parse_shapes(text: str) -> tuple[tuple[int, ...], ...]:
    """Return the input shapes; what is no tensor becomes an empty shape.

    Examples
    --------
    >>> parse_shapes("[[32,3],[],[3,5]]")
    ((32, 3), (), (3, 5))
    """
    try:
        shapes = json.loads(text)
    except (ValueError, RecursionError):
        return ()
    if not isinstance(shapes, list):
        return ()
    return tuple(tuple(s) if isinstance(s, list) and _is_shape(s) else () for s in shapes)


def _is_shape(sizes: list[Any]) -> bool:
    """Tell whether *sizes* are those of a tensor that any machine could hold."""
    whole = len(sizes) <= MOST_SIZES and all(type(d) is int and d >= 0 for d in sizes)
    return whole and math.prod(sizes) <= MOST_ELEMENTS


@lru_cache(maxsize=100_000)
def flops(name: str, text: str) -> float | None:
    """Return the operations of a product or convolution; None when shapes do not tell.

    Examples
    --------
    >>> flops("aten::mm", "[[2,3],[3,4]]")
    48.0
    >>> flops("aten::addmm", "[[4],[2,3],[3,4]]")
    48.0
    """
    shapes = [s for s in parse_shapes(text) if s]
    kind = name.rsplit("::", 1)[-1]
    if _has_bias(name):
        shapes = shapes[1:]
    if kind in ("mm", "addmm", "bmm", "baddbmm", "matmul") and len(shapes) > 1:
        return 2.0 * math.prod(shapes[0]) * shapes[1][-1]
    if kind == "linear" and len(shapes) > 1:
        return 2.0 * math.prod(shapes[0]) * shapes[1][0]
    return None


@lru_cache(maxsize=100_000)
def activation_shape(name: str, text: str) -> tuple[int, ...]:
    """Return the shape of a product's activation input, empty if unknown: a bias comes before it.

    Examples
    --------
    >>> activation_shape("aten::addmm", "[[4],[2,3],[3,4]]")
    (2, 3)
    """
    shapes = [shape for shape in parse_shapes(text) if shape]
    return shapes[min(int(_has_bias(name)), len(shapes) - 1)] if shapes else ()


def _has_bias(name: str) -> bool:
    return name.rsplit("::", 1)[-1] in ("addmm", "addbmm", "baddbmm", "addmv")


ITEM_BYTES = {"float": 4, "Half": 2, "BFloat16": 2, "double": 8, "Float8": 1}


@lru_cache(maxsize=100_000)
def matmul_work(name: str, shapes: str, dtypes: str) -> tuple[float, float]:
    """Return flops and bytes of a product, each operand moved once; NaN where unknown.

    Examples
    --------
    >>> matmul_work("aten::mm", "[[2,3],[3,4]]", '["float","float"]')
    (48.0, 104.0)
    """
    count = flops(name, shapes)
    item = next((size for word, size in ITEM_BYTES.items() if word in dtypes), None)
    if count is None or item is None:
        return math.nan, math.nan
    operands = [s for s in parse_shapes(shapes) if len(s) > 1][-2:]
    columns = operands[1][0 if name.endswith("linear") else -1]
    out = math.prod(operands[0][:-1]) * columns
    return count, float(item * (sum(math.prod(s) for s in operands) + out))
