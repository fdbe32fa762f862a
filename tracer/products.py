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

PRODUCT_SIZES = ((256, 96), (128, 512))
"""Rows, and inner and outer dimension, of a small and a large matrix product."""

CONV_SIZES = ((16, 24, 3), (96, 12, 3))
"""Channels, image side and kernel side of a small and a large convolution of 4 images."""
IMAGES = 4


def product_rates() -> dict[str, dict[str, list[list[float]]]]:
    """Return ``{kind: {precision: [[weights, GFLOP/s], …]}}``, smaller product first.

    Kinds: ``linear`` (x @ w.T), ``input_gradient`` (y @ w), ``weight_gradient`` (y.T @ x),
    ``conv`` and ``conv_backward``. ``weights`` is the number of elements of the weight.
    """
    import torch

    precisions = {"fp32": torch.float32, "bf16": torch.bfloat16}
    rates: dict[str, dict[str, list[list[float]]]] = {}
    for precision, dtype in precisions.items():
        for rows, side in PRODUCT_SIZES:
            for kind, run in _products(rows, side, dtype).items():
                rate = 2 * rows * side**2 / quick_ns(run)
                rates.setdefault(kind, {}).setdefault(precision, []).append([side**2, rate])
        for channels, image, kernel in CONV_SIZES:
            weights = channels**2 * kernel**2
            forward = 2 * IMAGES * image**2 * weights
            for kind, (run, times) in _convolutions(channels, image, kernel, dtype).items():
                rate = times * forward / quick_ns(run)
                rates.setdefault(kind, {}).setdefault(precision, []).append([weights, rate])
    return {
        kind: {p: [[size, round(rate, 3)] for size, rate in found] for p, found in by.items()}
        for kind, by in rates.items()
    }


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
    channels: int, image: int, kernel: int, dtype: Any
) -> dict[str, tuple[Callable[[], object], int]]:
    """Return a convolution's forward and its backward, which makes two products of its size."""
    import torch

    x = torch.randn(IMAGES, channels, image, image, dtype=dtype)
    w = torch.randn(channels, channels, kernel, kernel, dtype=dtype)
    pad = [kernel // 2] * 2
    y = torch.nn.functional.conv2d(x, w, padding=pad)
    backward = torch.ops.aten.convolution_backward
    both = [True, True, False]
    return {
        "conv": (lambda: torch.nn.functional.conv2d(x, w, padding=pad), 1),
        "conv_backward": (
            lambda: backward(y, x, w, None, [1, 1], pad, [1, 1], False, [0, 0], 1, both),
            2,
        ),
    }
