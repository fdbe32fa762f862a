"""Jobs of one rank with modules, written down by hand, that pipelines are made of."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from foretrace.graph.literal import literal
from foretrace.graph.model import Platform
from foretrace.tracer.trace import Device, TraceMeta

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foretrace.graph.model import Graph

META = TraceMeta(format="foretrace", source="literal", batch_size=8)
FORWARD, BACKWARD, UPDATE = 204_000, 404_000, 40_000


def cpu_layers(
    layers: Sequence[str] = ("0", "1"),
    *,
    steps: int = 1,
    forward: int = FORWARD,
    backward: int = BACKWARD,
    load: int = 0,
) -> Graph:
    """Return steps of *layers* on a CPU: forward, backward, one update; times in ns.

    Half a batch takes 4,000 ns, an operator's dispatch, and half of the rest.
    """
    once: list[tuple[str, str | None, int, str | None]] = []
    if load:
        once.append(("next", "load", load, None))
    once += [("aten::relu", "forward", forward, layer) for layer in layers]
    once += [("aten::threshold_backward", "backward", backward, layer) for layer in layers[::-1]]
    once.append(("step", "optimizer", UPDATE, None))
    every = once * steps
    return literal(
        [(name, "host", 0, work, phase) for name, phase, work, _ in every],
        columns={
            "module": pd.Categorical([layer for *_, layer in every]),
            "step": np.repeat(np.arange(steps, dtype=np.int32), len(once)),
        },
        meta=META,
        wrap=True,
    )


def gpu_layers(layers: Sequence[str] = ("0", "1"), *, work: int = 100_000, steps: int = 1) -> Graph:
    """Return steps of *layers* on a device: a launch of 5,000 ns and a kernel of *work* each.

    Backward is launched by autograd's thread. A kernel follows its launch by 6,000 ns.
    """
    passes = [("forward", layer) for layer in layers] + [
        ("backward", layer) for layer in layers[::-1]
    ]
    tasks: list[Any] = []
    edges: list[Any] = []
    modules: list[str | None] = []
    for _ in range(steps):
        joint = len(tasks)
        for phase, layer in [*passes, ("optimizer", None)]:
            row = len(tasks)
            tasks.append(("cudaLaunchKernel", "launch", int(phase == "backward"), 5_000, phase))
            tasks.append((f"elementwise_kernel<{phase}>", "kernel", 2, work, phase))
            edges.append((row, row + 1, "launch", 6_000))
            modules += [layer, layer]
        first_back, last_back = joint + 2 * len(layers), joint + 4 * len(layers) - 2
        edges.append((first_back - 2, first_back, "fork", 0))
        edges.append((last_back, last_back + 2, "join", 0))
    per_step = len(tasks) // steps
    start = np.cumsum([5_000 * (kind == "launch") for _, kind, *_ in tasks])
    return literal(
        tasks,
        edges,
        columns={
            "module": pd.Categorical(modules),
            "step": np.repeat(np.arange(steps, dtype=np.int32), per_step),
            "start_ns": start,
        },
        meta=replace(META, devices=(Device(0, "NVIDIA A100-SXM4-80GB"),)),
        platform=Platform(launch_ns=5_000),
        wrap=True,
    )


def without_sharing(graph: Graph) -> Graph:
    """Return *graph* in which transfers and computing leave each other alone."""
    return graph.with_state(network=None)


def transfer_ns(graph: Graph) -> int:
    """Return what one of the transfers between stages takes."""
    return int(graph.tasks["work_ns"][graph.tasks["kind"] == "p2p"].iloc[0])


def cpu_job_with_layers() -> Graph:
    """Return two layers on a CPU whose recorder saw a parameter of 1 MB in each."""
    graph = cpu_layers()
    seen = {"parameters": [["0.weight", [250_000], 4], ["1.weight", [250_000], 4]]}
    return replace(graph, meta=replace(graph.meta, extra=seen))
