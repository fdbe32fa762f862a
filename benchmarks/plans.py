"""Plans for many GPUs from one rank's job: how long they take, and how much memory.

    python -m benchmarks.plans

Goals: a 1,024-GPU DDP and a 16,384-GPU pipeline x tensor x data plan in 10 s and 2 GiB each.
"""

from __future__ import annotations

import resource
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from foretrace.graph.literal import literal
from foretrace.replaying.replay import replay
from foretrace.tracer.trace import Device, TraceMeta
from foretrace.transforms.distributed.ddp.ddp import ddp
from foretrace.transforms.distributed.pipeline.pipeline import pipeline
from foretrace.transforms.distributed.tensor_parallel.tensor_parallel import tensor_parallel

if TYPE_CHECKING:
    from collections.abc import Callable

    from foretrace.graph.model import Graph

LAYERS, HIDDEN, TOKENS, BATCH = 96, 12_288, 2_048, 64
STAGES, DEGREE, REPLICAS, MICRO_BATCHES = 16, 8, 128, 64
WORKERS = 1_024
KERNEL_NS, CALL_NS = 2_000_000, 5_000
LAYER = (
    ("aten::layer_norm", "norm", ()),
    ("aten::linear", "attention.query", (HIDDEN, 3 * HIDDEN)),
    ("aten::scaled_dot_product_attention", "attention", ()),
    ("aten::linear", "attention.out", (HIDDEN, HIDDEN)),
    ("aten::add", "", ()),
    ("aten::layer_norm", "norm2", ()),
    ("aten::linear", "mlp.up", (HIDDEN, 4 * HIDDEN)),
    ("aten::gelu", "mlp.act", ()),
    ("aten::linear", "mlp.down", (4 * HIDDEN, HIDDEN)),
    ("aten::add", "", ()),
)
"""Operators of a transformer's layer: name, module, and the weight's inputs and outputs."""


def one_rank() -> Graph:
    """Return one step of a transformer on one device: a launch and a kernel per operator."""
    layers = [f"blocks.{at}" for at in range(LAYERS)]
    forward = [(name, f"{layer}.{module}".rstrip("."), weight)
               for layer in layers for name, module, weight in LAYER]  # fmt: skip
    passes = [("forward", each) for each in forward]
    passes += [("backward", each) for each in forward[::-1] for _ in range(2)]
    passes += [("optimizer", ("fused_adam", "", ()))] * LAYERS
    tasks: list[Any] = []
    edges: list[Any] = []
    for phase, (name, _, _) in passes:
        edges.append((len(tasks), len(tasks) + 1, "launch", 6_000))
        tasks.append(("cudaLaunchKernel", "launch", 0, CALL_NS, phase))
        tasks.append((f"kernel<{name}>", "kernel", 1, KERNEL_NS, phase))
    shapes = [_shape(weight) for _, (_, _, weight) in passes]
    parameters = [[f"{module}.weight", list(weight), 2] for _, module, weight in forward if weight]
    return literal(
        tasks,
        edges,
        columns={
            "operator": np.repeat(np.arange(len(passes)), 2),
            "module": pd.Categorical([m or None for _, (_, m, _) in passes for _ in range(2)]),
        },
        operators={
            "name": [name for _, (name, _, _) in passes],
            "parent": np.full(len(passes), -1),
            "phase": pd.Categorical([phase for phase, _ in passes]),
            "shapes": shapes,
            "dtypes": ['["c10::BFloat16"]'] * len(passes),
        },
        meta=TraceMeta(
            format="foretrace",
            source="literal",
            batch_size=BATCH,
            devices=(Device(0, "NVIDIA A100-SXM4-80GB"),),
            extra={"parameters": parameters},
        ),
        wrap=True,
    )


def _shape(weight: tuple[int, ...]) -> str:
    samples = f"[{BATCH},{TOKENS},{weight[0] if weight else HIDDEN}]"
    return f"[{samples},[{weight[1]},{weight[0]}]]" if weight else f"[{samples}]"


def main() -> None:
    """Print the times of both plans and the peak of memory."""
    graph = one_rank()
    replay(graph)  # compiles the engines
    _timed("data", lambda: ddp(graph, workers=WORKERS, cluster="dgx-a100"))
    _timed("pipeline x tensor x data", lambda: _plan(graph))


def _plan(graph: Graph) -> Graph:
    shared = tensor_parallel(graph, degree=DEGREE, cluster="dgx-a100")
    return pipeline(
        shared,
        stages=STAGES,
        micro_batches=MICRO_BATCHES,
        schedule="1f1b",
        replicas=REPLICAS,
        cluster="dgx-a100",
    )


def _timed(name: str, make: Callable[[], Graph]) -> None:
    begin = time.perf_counter()
    graph = make()
    made = time.perf_counter()
    step_ns = replay(graph).step_ns
    end = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{name}: {graph.meta.world_size:,} GPUs, {len(graph.tasks):,} tasks, "
        f"graph {made - begin:.2f} s, replay {end - made:.2f} s, peak {peak:.2f} GiB, "
        f"step {step_ns / 1e9:.2f} s"
    )


if __name__ == "__main__":
    main()
