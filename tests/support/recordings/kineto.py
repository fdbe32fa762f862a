"""A small recording in Kineto's format, written by hand: four steps, three kernels each."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

STEPS = 4
STEP_US = 1_000
CALLS = (  # operator, its start and length, length of its kernel, name of the kernel
    ("aten::mm", 20, 40, 500, "ampere_sgemm_128x64_nn"),
    ("aten::relu", 70, 30, 200, "void at::native::vectorized_elementwise_kernel<4, Relu>"),
    ("aten::_fused_adam_", 120, 50, 150, "multi_tensor_apply_kernel<FusedAdam>"),
)


def small_trace() -> dict[str, Any]:
    """Return the recording: every step launches three kernels and waits for the device."""
    events = [event for step in range(STEPS) for event in _step(step)]
    device = {"id": 0, "name": "NVIDIA A100-SXM4-40GB", "numSms": 108}
    return {"schemaVersion": 1, "deviceProperties": [device], "traceEvents": events}


def write_small_trace(folder: Path) -> Path:
    """Write the recording into *folder*."""
    path = folder / "small_trace.json"
    path.write_text(json.dumps(small_trace()), "utf-8")
    return path


def _step(step: int) -> list[dict[str, Any]]:
    begin = step * STEP_US
    host = {"ph": "X", "pid": 1, "tid": 1}
    events = [
        {**host, "cat": "user_annotation", "name": f"ProfilerStep#{step}", "ts": begin, "dur": 990},
        {
            **host,
            "cat": "user_annotation",
            "name": "Optimizer.step#Adam.step",
            "ts": begin + 110,
            "dur": 70,
        },
    ]
    free = begin + 30
    for number, (name, start, length, busy, kernel) in enumerate(CALLS):
        ids = {"correlation": 10 * step + number + 1, "External id": 10 * step + number + 1}
        launch = begin + start + 10
        events += [
            {
                **host,
                "cat": "cpu_op",
                "name": name,
                "ts": begin + start,
                "dur": length,
                "args": ids,
            },
            {
                **host,
                "cat": "cuda_runtime",
                "name": "cudaLaunchKernel",
                "ts": launch,
                "dur": 6,
                "args": ids,
            },
            {
                "ph": "X",
                "pid": 0,
                "tid": 7,
                "cat": "kernel",
                "name": kernel,
                "ts": max(free, launch + 8),
                "dur": busy,
                "args": {
                    **ids,
                    "device": 0,
                    "stream": 7,
                    "grid": [432, 1, 1],
                    "block": [256, 1, 1],
                },
            },
        ]
        free = max(free, launch + 8) + busy + 1
    wait = {"correlation": 10 * step + 9}
    events.append(
        {
            **host,
            "cat": "cuda_runtime",
            "name": "cudaDeviceSynchronize",
            "ts": begin + 200,
            "dur": free + 9 - (begin + 200),
            "args": wait,
        }
    )
    return events
