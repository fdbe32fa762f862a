"""Jobs of named modules, written down by hand: layers on one thread, layers that can be shared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from foretrace.graph.literal import literal
from foretrace.tracer.trace import Device, TraceMeta
from foretrace.transforms.costs.operators import ACCUMULATE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foretrace.graph.model import Graph

Operator = tuple[str, str, str]
"""Name, module and shapes."""
LINEAR = "aten::linear"
PATHS = ["blocks.1", "blocks.1.fc", "blocks.10.fc", "head", "blocks.1.fc", "head", None]


def two_blocks() -> Graph:
    """Build forward, backward and update on one thread; blocks.1 has 3/4 of the parameters."""
    names = ["add", "mm", "mm", "loss", "mm backward", "loss backward", "adam"]
    phases = ["forward"] * 4 + ["backward"] * 2 + ["optimizer"]
    return literal(
        [(name, "host", 0, 100, phase) for name, phase in zip(names, phases, strict=True)],
        columns={"module": pd.Categorical(PATHS)},
        operators={
            "name": [ACCUMULATE, ACCUMULATE, "aten::mm"],
            "parent": [-1, -1, -1],
            "module": ["blocks.1.fc", "head", "head"],
            "shapes": ["[[30,10]]", "[[100]]", "[[30,10]]"],
        },
        lag_ns=5,
    )


def linear(module: str, inputs: int, outputs: int) -> Operator:
    """Return a layer on 2 x 4 samples."""
    return LINEAR, module, f"[[2,4,{inputs}],[{outputs},{inputs}],[{outputs}]]"


def mixing(module: str, width: int) -> Operator:
    """Return something non-linear."""
    return "aten::gelu", module, f"[[2,4,{width}]]"


MLP = (
    ("aten::layer_norm", "0.norm", "[[2,4,16]]"),
    linear("0.up", 16, 64),
    mixing("0.act", 64),
    linear("0.down", 64, 16),
    ("aten::dropout", "0.drop", "[[2,4,16]]"),
)
ATTENTION = (
    linear("0.q", 16, 16),
    linear("0.k", 16, 16),
    linear("0.v", 16, 16),
    ("aten::scaled_dot_product_attention", "0", "[[2,4,16],[2,4,16],[2,4,16]]"),
    linear("0.out", 16, 16),
)


def forward_and_backward(
    operators: Sequence[Operator], *, device: bool = False, work: int = 104_000
) -> Graph:
    """Return one step: *operators* forward and backward, on a CPU or as launches of kernels."""
    passes = [("forward", each) for each in operators]
    passes += [("backward", each) for each in operators[::-1]]
    tasks: list[Any] = []
    edges: list[Any] = []
    operator, modules = [], []
    for at, (phase, (name, module, _)) in enumerate(passes):
        row = len(tasks)
        tasks.append(("cudaLaunchKernel" if device else name, "launch" if device else "host", 0,
                      5_000 if device else work, phase))  # fmt: skip
        copies = 1
        if device:
            tasks.append((f"kernel<{name}>", "kernel", 1, work, phase))
            edges.append((row, row + 1, "launch", 6_000))
            copies = 2
        operator += [at] * copies
        modules += [module] * copies
    devices = (Device(0, "NVIDIA A100-SXM4-80GB"),) if device else ()
    return literal(
        tasks,
        edges,
        columns={"operator": operator, "module": pd.Categorical(modules)},
        operators={
            "name": [name for _, (name, _, _) in passes],
            "parent": [-1] * len(passes),
            "phase": pd.Categorical([phase for phase, _ in passes]),
            "shapes": [shapes for _, (_, _, shapes) in passes],
            "dtypes": ['["float"]'] * len(passes),
        },
        meta=TraceMeta(format="foretrace", source="literal", batch_size=2, devices=devices),
        wrap=True,
    )
