"""How fast this CPU multiplies in fp32 and bf16, by kind of product and by size.

A CPU without bf16 units emulates them, and then a transposed operand or a backward pass can be ten
times as slow as its twin: one peak per precision says nothing. Comes out: for each kind and
precision the rates at a small and a large product, between which users interpolate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from foretrace.tracer.timing import quick_ns

if TYPE_CHECKING:
    from collections.abc import Callable

PRODUCT_SIZES = ((128, 96), (128, 512), (16, 2048))
"""Rows, and both sides of the weight, of matrix products from small to large."""

CONV_SIZES = ((96, 4), (32, 16), (12, 64))
"""Channels and image side of a 3x3 convolution of 4 images: from late to early in a network."""
IMAGES, KERNEL = 4, 3
FORMS = {"": CONV_SIZES, "pointwise_": CONV_SIZES[::2], "depthwise_": CONV_SIZES[::2]}
"""Convolutions: 3x3 over all channels, 1x1, and 3x3 of each channel by itself."""

ATTENTION = (2, 4, 64, 32)
"""Samples, heads, sequence and head dimension of a fused attention."""


def product_rates() -> dict[str, dict[str, list[list[float]]]]:
    """Return ``{kind: {precision: [[size, GFLOP/s], …]}}``, smaller product first.

    Kinds: ``linear`` (x @ w.T), ``input_gradient`` (y @ w) and ``weight_gradient`` (y.T @ x), whose
    size is the number of columns of the result's right operand; ``conv`` and ``conv_backward``,
    also pointwise and depthwise, whose size is the number of output pixels; ``attention``,
    forward and backward, whose size is
    its sequence.
    """
    import torch

    precisions = {"fp32": torch.float32, "bf16": torch.bfloat16}
    rates: dict[str, dict[str, list[list[float]]]] = {}
    for precision, dtype in precisions.items():
        for rows, side in PRODUCT_SIZES:
            for kind, run in _products(rows, side, dtype).items():
                rate = 2 * rows * side**2 / quick_ns(run)
                rates.setdefault(kind, {}).setdefault(precision, []).append([side, rate])
        for form, (channels, image) in [(f, size) for f, sizes in FORMS.items() for size in sizes]:
            for kind, (run, work) in _convolutions(form, channels, image, dtype).items():
                rate = work / quick_ns(run)
                rates.setdefault(kind, {}).setdefault(precision, []).append([image**2, rate])
        samples, heads, sequence, width = ATTENTION
        flops = 3 * 4 * samples * heads * sequence**2 * width
        rate = flops / quick_ns(_attention(dtype))
        rates.setdefault("attention", {})[precision] = [[sequence, rate]]
    return {
        kind: {p: [[size, significant(rate)] for size, rate in found] for p, found in by.items()}
        for kind, by in rates.items()
    }


def significant(rate: float) -> float:
    """Return *rate* to four digits, which leaves the slowest emulated product above zero.

    >>> significant(123.456), significant(0.000123456)
    (123.5, 0.0001235)
    """
    return float(f"{rate:.4g}")


def _products(rows: int, side: int, dtype: Any) -> dict[str, Callable[[], object]]:
    """Return the three products of a linear layer's forward and backward."""
    import torch

    x, y = (torch.randn(rows, side, dtype=dtype) for _ in range(2))
    w = torch.randn(side, side, dtype=dtype)
    return {
        "linear": lambda: torch.nn.functional.linear(x, w),
        "input_gradient": lambda: torch.mm(y, w),
        "weight_gradient": lambda: torch.mm(y.t(), x),
    }


def _convolutions(
    form: str, channels: int, image: int, dtype: Any
) -> dict[str, tuple[Callable[[], object], float]]:
    """Return a convolution's forward and its backward of two such products, with their flops."""
    import torch

    side = 1 if form == "pointwise_" else KERNEL
    groups = channels if form == "depthwise_" else 1
    x = torch.randn(IMAGES, channels, image, image, dtype=dtype)
    w = torch.randn(channels, channels // groups, side, side, dtype=dtype)
    pad = [side // 2] * 2
    y = torch.nn.functional.conv2d(x, w, padding=pad, groups=groups)
    backward = torch.ops.aten.convolution_backward
    both = [True, True, False]
    work = 2.0 * IMAGES * image**2 * w.numel()
    return {
        f"{form}conv": (
            lambda: torch.nn.functional.conv2d(x, w, padding=pad, groups=groups),
            work,
        ),
        f"{form}conv_backward": (
            lambda: backward(y, x, w, None, [1, 1], pad, [1, 1], False, [0, 0], groups, both),
            2 * work,
        ),
    }


def _attention(dtype: Any) -> Callable[[], object]:
    import torch

    q = torch.randn(*ATTENTION, dtype=dtype, requires_grad=True)
    attend = torch.nn.functional.scaled_dot_product_attention
    return lambda: attend(q, q, q, is_causal=True).sum().backward()
