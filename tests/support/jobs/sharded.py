"""Jobs of two layers with names, shapes and an optimizer, on a CPU and on a device: literal."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pandas as pd

from foretrace.graph.literal import literal
from foretrace.graph.model import Platform
from foretrace.tracer.trace import TraceMeta
from foretrace.transforms.costs.operators import ACCUMULATE

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

SHAPES = {"layers.0": (500, 250), "layers.1": (1000, 250)}
"""Weights of the layers: 0.5 and 1 MB."""
COPY_GBPS = 10.0
META = TraceMeta(
    format="foretrace",
    source="literal",
    batch_size=32,
    machine={"copy_gbps": COPY_GBPS, "add_gbps": 10.0, "update_gbps": 10.0},
    optimizer={"name": "SGD", "kind": "loop", "bytes": 1_500_000, "tensors": 2, "state_passes": 3},
    extra={"parameters": [[f"{layer}.weight", list(shape), 4] for layer, shape in SHAPES.items()]},
)

_STEP = (
    ("load", "load", None, 100_000),
    ("mm", "forward", "layers.0", 1_000_000),
    ("mm", "forward", "layers.1", 2_000_000),
    ("mm", "backward", "layers.1", 4_000_000),
    ("accumulate", "backward", "layers.1", 10_000),
    ("mm", "backward", "layers.0", 2_000_000),
    ("accumulate", "backward", "layers.0", 10_000),
    ("update", "optimizer", None, 304_000),
)
"""Name, phase, module and ns of each task of a step."""
STEP_NS = sum(task[-1] for task in _STEP)


def host_job(steps: int = 2) -> Graph:
    """Return *steps* steps on a CPU, one thread; nothing between the tasks."""
    every = _STEP * steps
    operators = [
        (ACCUMULATE, f"[{list(SHAPES[module])}]") if name == "accumulate" else ("aten::mm", None)
        for name, _, module, _ in every
        if module
    ]
    numbers = iter(range(len(operators)))
    return literal(
        [(name, "host", 0, ns, phase) for name, phase, _, ns in every],
        columns={
            "module": pd.Categorical([module for *_, module, _ in every]),
            "step": [at // len(_STEP) for at in range(len(every))],
            "operator": [next(numbers) if module else -1 for *_, module, _ in every],
        },
        operators={
            "name": [name for name, _ in operators],
            "parent": [-1] * len(operators),
            "shapes": [shape for _, shape in operators],
        },
        meta=META,
        wrap=True,
    )


def device_job(steps: int = 2) -> Graph:
    """Return the same job on a device: every task but the loading launches a kernel of its time."""
    host = host_job(steps)
    tasks = [
        (str(t.name), "host" if t.phase == "load" or t.name == "accumulate" else "launch", 0, 5_000,
         str(t.phase))
        for t in host.tasks.itertuples(index=False)
    ]  # fmt: skip
    launches = [row for row, task in enumerate(tasks) if task[1] == "launch"]
    kernels = [
        (
            f"{tasks[row][0]}_kernel",
            "kernel",
            1,
            int(host.tasks["work_ns"].iloc[row]),
            tasks[row][4],
        )
        for row in launches
    ]
    rows = [*range(len(tasks)), *launches]
    columns = {
        "module": pd.Categorical(host.tasks["module"].astype(object).iloc[rows]),
        "step": host.tasks["step"].to_numpy()[rows],
        "operator": [*host.tasks["operator"], *[-1] * len(kernels)],
    }
    graph = literal(
        tasks + kernels,
        [(row, len(tasks) + at, "launch", 6_000) for at, row in enumerate(launches)],
        columns=columns,
        meta=META,
        wrap=True,
        platform=Platform(launch_ns=5_000),
    )
    start = [10_000 * row for row in range(len(tasks))]
    start += [10_000 * row + 6_000 for row in launches]
    return replace(graph, operators=host.operators, tasks=graph.tasks.assign(start_ns=start))
