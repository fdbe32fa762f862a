"""Jobs of named kernels, written down by hand: attention, uploads, norms, layout changes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from foretrace.graph.literal import literal
from foretrace.graph.model import Platform
from foretrace.tracer.trace import Device, TraceMeta
from tests.support.jobs.simple import META

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

US = 1_000
TO_NHWC = "void cudnn::ops::nchwToNhwcKernel<float, float, float>"
TO_NCHW = "void cudnn::ops::nhwcToNchwKernel<float, float, float>"
NHWC_CONV = "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc"
A100 = "NVIDIA A100-SXM4-80GB"
SGEMM, CONV = "ampere_sgemm_128x64_tn", "cudnn_ampere_scudnn_128x64_relu_xregs_large_nn_v1"
TENSOR = "cutlass_80_tensorop_s1688gemm_128x128_tn"
BF16 = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_nn"
SOFTMAX = "softmax_warp_forward<c10::BFloat16, c10::BFloat16, float, 8, false>"
GRADIENT = "softmax_warp_backward<c10::BFloat16, c10::BFloat16, float, 8, false>"
MASK = "vectorized_elementwise_kernel<4, masked_fill<c10::BFloat16>>"
CHAIN = [BF16, MASK, SOFTMAX, BF16]
BACKWARD_CHAIN = [BF16, BF16, GRADIENT, MASK, BF16, BF16]


def launching(*passes: tuple[str, list[str]], device: str = A100, work: int = 100_000) -> Graph:
    """Build a job whose launches on lane 0 put the named kernels on lane 1, with host work between.

    Each pass is (phase, kernel names). Every launch takes 5 us, the host work before it 3 us.
    """
    tasks: list[Any] = []
    edges: list[Any] = []
    for phase, names in passes:
        for name in names:
            tasks += [
                ("aten::op", "host", 0, 3_000, phase),
                ("cudaLaunchKernel", "launch", 0, 5_000, phase),
                (name, "kernel", 1, work, phase),
            ]
            edges.append((len(tasks) - 2, len(tasks) - 1, "launch", 6_000))
    return literal(tasks, edges, meta=replace(META, devices=(Device(0, device),)))


def uploading(steps: int = 3, *, pageable: bool = True) -> Graph:
    """Build steps that upload 400 µs (and wait for it), then compute 1,000 µs."""
    memory = "Pageable" if pageable else "Pinned"
    tasks, edges = [], []
    for step in range(steps):
        row = 5 * step
        tasks += [
            ("cudaMemcpyAsync", "launch", 0, 300 * US, "forward"),
            ("cudaStreamSynchronize", "sync", 0, 5 * US, "forward"),
            ("cudaLaunchKernel", "launch", 0, 5 * US, "forward"),
            (f"Memcpy HtoD ({memory} -> Device)", "memcpy", 1, 400 * US, "forward"),
            ("gemm", "kernel", 1, 1_000 * US, "forward"),
        ]
        edges += [(row, row + 3, "launch", 6 * US), (row + 2, row + 4, "launch", 6 * US)]
    return literal(
        tasks,
        edges,
        columns={
            "step": np.repeat(np.arange(steps, dtype=np.int32), 5),
            "start_ns": np.arange(5 * steps) * US,
            "wait": ["own", "stream", "none", "none", "none"] * steps,
            "wait_lane": [-1, 1, -1, -1, -1] * steps,
        },
        wrap=True,
    )


def batch_norms() -> Graph:
    """Norm, ReLU, convolution, norm, addition, ReLU; backward: ReLU, norm. With operators."""
    forward = ["bn_fw", "clamp", "scudnn", "bn_fw", "add", "clamp"]
    backward = ["threshold", "bn_bw"]
    phases = ["forward"] * 6 + ["backward"] * 2
    operators = ["aten::relu_", "aten::clamp_min_", "aten::threshold_backward"]
    tasks = [("aten::relu_", "host", 0, 3_000, "forward"), ("hipFree", "host", 0, 9, "forward")]
    tasks += [("launch", "launch", 0, 5_000, phase) for phase in phases]
    tasks += [(n, "kernel", 1, 80_000, p) for n, p in zip(forward + backward, phases, strict=True)]
    operator = [0, 0] + [-1] * 8 + [-1, 1, -1, -1, -1, -1, 2, -1]
    return literal(
        tasks,
        [(2 + i, 10 + i, "launch") for i in range(8)],
        columns={"operator": operator},
        operators={"name": operators, "parent": [-1, 0, -1]},
    )


def projections(**columns: Any) -> Graph:
    """Query, key and value of two blocks, and an output, each a launch and a product."""
    paths = [f"blocks.{b}.{m}" for b in (0, 1) for m in ("q", "k", "v", "out")]
    count = len(paths)
    return literal(
        [("launch", "launch", 0, 5_000, "forward")] * count
        + [("sgemm", "kernel", 1, 10_000 + 1_000 * i, "forward") for i in range(count)],
        [(i, count + i, "launch") for i in range(count)],
        columns={"module": pd.Categorical(paths * 2), **columns},
    )


def layout_changes() -> Graph:
    """Return two convolutions, images turned around before and after each, and once more."""
    names = [TO_NHWC, NHWC_CONV, TO_NCHW, TO_NHWC, TO_NHWC, NHWC_CONV, TO_NCHW]
    return literal([(name, "kernel", 0, 100, "forward") for name in names])


def cpu_convolutions() -> Graph:
    """Return a convolution, a norm and a product on a CPU, 100 ns each."""
    names = ["aten::mkldnn_convolution", "aten::native_batch_norm", "aten::addmm"]
    return literal([(name, "host", 0, 100, "forward") for name in names])


def two_kernels(**settings: object) -> Graph:
    """Build two launches on one thread and their kernels on one stream."""
    return literal(
        [
            ("cudaLaunchKernel", "launch", 0, 5, "forward"),
            ("cudaLaunchKernel", "launch", 0, 5, "forward"),
            ("gemm", "kernel", 1, 50, "forward"),
            ("relu", "kernel", 1, 70, "forward"),
        ],
        [(0, 2, "launch", 6), (1, 3, "launch", 6)],
        platform=Platform(gap_ns={("kernel", "kernel"): 2}, launch_ns=4),
        **settings,
    )


def device_bound(*, unprofiled_step_ns: tuple[int, ...] = (), batch: int | None = None) -> Graph:
    """Return a stream of one gemm (30 µs) and one relu (10 µs), measured at 80 µs a step."""
    meta = TraceMeta(
        format="foretrace",
        source="literal",
        unprofiled_step_ns=unprofiled_step_ns,
        batch_size=batch,
    )
    tasks = [("gemm", "kernel", 0, 30_000, None), ("relu", "kernel", 0, 10_000, None)]
    return literal(tasks, wrap=True, meta=meta, measured_step_ns=80_000)
