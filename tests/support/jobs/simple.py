"""Small training jobs written down by hand, and a strategy that varies them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import strategies as st

from foretrace.graph.literal import literal
from foretrace.graph.model import Platform
from foretrace.tracer.trace import Device, TraceMeta

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from foretrace.graph.model import Graph

GEMM = "cutlass_80_tensorop_s1688gemm_128x128_tn"
NORM = "vectorized_layer_norm_kernel<float, float>"
RELU = "vectorized_elementwise_kernel<4, relu<float>, at::detail::Array<char*, 2>>"
SUM = "reduce_kernel<512, 1, ReduceOp<float>>"
MUL = "vectorized_elementwise_kernel<4, MulFunctor<float>, at::detail::Array<char*, 2>>"
ADDCDIV = "vectorized_elementwise_kernel<4, addcdiv<float>, at::detail::Array<char*, 4>>"
MACHINE = {
    "cores": 2,
    "threads": 1,
    "fp32_gflops": 140.0,
    "bf16_gflops": 84.0,
    "conv_fp32_gflops": 100.0,
    "conv_bf16_gflops": 50.0,
    "copy_gbps": 25.0,
    "add_gbps": 40.0,
    "cast_gbps": 20.0,
}
META = TraceMeta(format="foretrace", source="literal", batch_size=32)

#       0 next   1-3 forward launches     4-6 backward launches (autograd)   7-8 update  9 wait
_CALLS = (
    ("DataLoader.__next__", "host", 0, "load", None),
    ("cudaLaunchKernel", "launch", 0, "forward", GEMM),
    ("cudaLaunchKernel", "launch", 0, "forward", NORM),
    ("cudaLaunchKernel", "launch", 0, "forward", RELU),
    ("cudaLaunchKernel", "launch", 1, "backward", GEMM),
    ("cudaLaunchKernel", "launch", 1, "backward", NORM),
    ("cudaLaunchKernel", "launch", 1, "backward", SUM),
    ("cudaLaunchKernel", "launch", 0, "optimizer", MUL),
    ("aten::addcdiv_", "host", 0, "optimizer", None),
    ("cudaLaunchKernel", "launch", 0, "optimizer", ADDCDIV),
    ("cudaStreamSynchronize", "sync", 0, "optimizer", None),
)


def gpu_job(
    *,
    steps: int = 2,
    work: int = 100_000,
    load: int = 50_000,
    device: str = "NVIDIA A100-SXM4-80GB",
) -> Graph:
    """Build *steps* steps of a job: load, forward, backward on its own thread, update, wait.

    Times in ns: every kernel takes *work*, every call 5,000, loading *load*.
    """
    tasks: list[Any] = []
    edges: list[Any] = []
    columns: dict[str, list[Any]] = {"step": [], "wait": [], "wait_lane": [], "start_ns": []}
    for step in range(steps):
        forward_end = backward = -1
        for call, (name, kind, lane, phase, kernel) in enumerate(_CALLS):
            row = len(tasks)
            if call == 4:
                edges.append((forward_end, row, "fork", 1_000))
            if call == 7:
                edges.append((backward, row, "join", 1_000))
            tasks.append((name, kind, lane, load if phase == "load" else 5_000, phase))
            is_sync = kind == "sync"
            _add(columns, step, "stream" if is_sync else "none", 2 if is_sync else -1, row)
            forward_end, backward = (row, backward) if lane == 0 else (forward_end, row)
            if kernel:
                tasks.append((kernel, "kernel", 2, work, phase))
                _add(columns, step, "none", -1, row)
                edges.append((row, row + 1, "launch", 6_000))
    columns["start_ns"] = (np.asarray(columns["start_ns"]) * 10_000).tolist()
    meta = replace(META, devices=(Device(0, device),))
    return literal(
        tasks,
        edges,
        columns=columns,
        meta=meta,
        platform=Platform(queue_depth=1_023),
        wrap=True,
    )


def _add(columns: dict[str, list[Any]], step: int, wait: str, wait_lane: int, start: int) -> None:
    values = {"step": step, "wait": wait, "wait_lane": wait_lane, "start_ns": start}
    for name, value in values.items():
        columns[name].append(value)


_OPERATORS = (
    ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "load", None),
    ("aten::addmm", "forward", "[[64],[32,128],[128,64]]"),
    ("aten::relu", "forward", "[[32,64]]"),
    ("aten::mm", "backward", "[[32,64],[64,128]]"),
    ("aten::mul_", "optimizer", "[[128,64]]"),
    ("aten::addcdiv_", "optimizer", "[[128,64],[128,64],[128,64]]"),
)


def cpu_job(*, steps: int = 2, work: int = 100_000, load: int = 50_000) -> Graph:
    """Build *steps* steps of a CPU job with operators; each takes *work* ns, loading *load*."""
    tasks = [
        (name, "host", 0, load if phase == "load" else work, phase)
        for _ in range(steps)
        for name, phase, _shapes in _OPERATORS
    ]
    size = len(_OPERATORS)
    step = np.repeat(np.arange(steps, dtype=np.int32), size)
    meta = replace(
        META,
        machine=MACHINE,
        optimizer={
            "name": "Adam",
            "kind": "loop",
            "bytes": 25_000,
            "tensors": 2,
            "state_passes": 7,
        },
        loader={"workers": 0, "prefetch": 2, "cpu_share": 1.0},
    )
    return literal(
        tasks,
        columns={"step": step, "operator": np.arange(len(tasks), dtype=np.int32)},
        operators={
            "name": [o[0] for o in _OPERATORS] * steps,
            "parent": np.full(len(tasks), -1, np.int32),
            "step": step,
            "phase": [o[1] for o in _OPERATORS] * steps,
            "shapes": [o[2] for o in _OPERATORS] * steps,
        },
        meta=meta,
        wrap=True,
        measured_step_ns=float(work * (size - 1) + load),
    )


@st.composite
def jobs(draw: st.DrawFn, builders: Sequence[Callable[..., Graph]] = (gpu_job, cpu_job)) -> Graph:
    """Draw a job of a few steps with varied times, by default on a GPU or a CPU."""
    steps = draw(st.integers(1, 4))
    work, load = draw(st.integers(3_000, 1_000_000)), draw(st.integers(100_000, 1_000_000))
    build = draw(st.sampled_from(builders))
    graph: Graph = build(steps=steps, work=work, load=load)
    times = st.lists(
        st.integers(0, 1_000_000), min_size=len(graph.tasks), max_size=len(graph.tasks)
    )
    extra = np.asarray(draw(times), np.int64)
    return replace(graph, tasks=graph.tasks.assign(work_ns=graph.tasks["work_ns"] + extra))
