"""The process that measures a machine's rates, so that the job's own process stays as it is.

Arguments: the number of threads, and the process that asked. The last line of standard output is a
JSON object of rates, as `machine_probe.probe` describes them.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch

from foretrace.tracer.child_process import end_with
from foretrace.tracer.recording.matmul_probe import product_rates, significant
from foretrace.tracer.timing import quick_ns

LARGE_BYTES = 64 << 20
UPDATE_BYTES = 16 << 20
ADAM_PASSES = 7


def main() -> None:
    """Measure with as many threads as the arguments say, until who asked has gone."""
    threads, parent = (int(text) for text in sys.argv[1:])
    end_with(parent)
    torch.set_num_threads(threads)
    sys.stdout.write(json.dumps(measure_rates()) + "\n")


def measure_rates() -> dict[str, Any]:
    """Return the rates of this process, in GFLOP/s and GB/s."""
    rates = {
        "fp32_gflops": _linear_gflops(torch.float32),
        "bf16_gflops": _linear_gflops(torch.bfloat16),
        "conv_fp32_gflops": _conv_gflops(torch.float32),
        "conv_bf16_gflops": _conv_gflops(torch.bfloat16),
        **_memory_rates(),
        "update_gbps": _update_gbps(),
    }
    return {
        **{name: significant(rate) for name, rate in rates.items()},
        "products": product_rates(),
    }


def _linear_gflops(dtype: Any, size: int = 320) -> float:
    """Rate of x @ w.T and of the two products its backward needs, as GFLOP/s."""
    x, w = (torch.randn(size, size, dtype=dtype) for _ in range(2))

    def run() -> None:
        y = torch.nn.functional.linear(x, w)
        torch.mm(y, w)
        torch.mm(y.t(), x)

    return 3 * 2 * size**3 / quick_ns(run)


def _conv_gflops(dtype: Any, channels: int = 32, image: int = 24) -> float:
    """Rate of a 3x3 convolution, forward and backward, as GFLOP/s."""
    layer = torch.nn.Conv2d(channels, channels, 3, padding=1, dtype=dtype)
    x = torch.randn(4, channels, image, image, dtype=dtype, requires_grad=True)
    flops = 3 * 2 * 4 * image**2 * 9 * channels**2
    return flops / quick_ns(lambda: layer(x).backward(torch.ones_like(x)))


def _memory_rates() -> dict[str, float]:
    a, b = (torch.ones(LARGE_BYTES // 4) for _ in range(2))
    half = torch.empty(LARGE_BYTES // 4, dtype=torch.bfloat16)
    return {
        "copy_gbps": 2 * LARGE_BYTES / quick_ns(lambda: b.copy_(a)),
        "add_gbps": 3 * LARGE_BYTES / quick_ns(lambda: b.add_(a)),
        "cast_gbps": 1.5 * LARGE_BYTES / quick_ns(lambda: half.copy_(a)),
    }


def _update_gbps() -> float:
    """Rate at which a fused optimizer streams parameters, gradients and two states."""
    weights = torch.nn.Parameter(torch.ones(UPDATE_BYTES // 4))
    weights.grad = torch.ones_like(weights)
    optimizer = torch.optim.Adam([weights], fused=True)
    return ADAM_PASSES * UPDATE_BYTES / quick_ns(optimizer.step)


if __name__ == "__main__":
    main()
