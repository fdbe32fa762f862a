"""Memory that a job holds from step to step: parameters, gradients that stay, optimizer states.

In: a graph. Out: bytes; 0 where nothing tells. Parameters come from what the recorder saw, the
shapes of gradients, or of weights, or the optimizer's passes over them.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from foretrace.errors import TransformError
from foretrace.transforms.costs.activations import element_bytes
from foretrace.transforms.costs.devices import hardware
from foretrace.transforms.costs.operators import ACCUMULATE, operator_class, parse_shapes
from foretrace.transforms.costs.optimizer_traffic import (
    ALREADY_FUSED,
    FUSED_PASSES,
    find_any_update,
)
from foretrace.transforms.costs.rules import STREAMING
from foretrace.transforms.edit.columns import is_in, matches

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

ZEROES = re.compile(r"::_?(foreach_)?zero_$")
"""Operators that set a gradient to zero and keep its memory."""
PRODUCT = r"::(addmm|mm|\w*convolution\w*)$"
EMBEDDING = "|::embedding$"
MANY = 0.5
"""Share of the gradients that are set to zero before all of them count as kept."""
TWO_STATES = 2
HALF = 0.5


def parameter_bytes(graph: Graph) -> float:
    """Return the bytes of parameters and buffers."""
    recorded = (graph.meta.optimizer or {}).get("bytes")
    buffers = sum(
        math.prod(shape) * size for _, shape, size in graph.meta.extra.get("buffers") or ()
    )
    if recorded:
        return float(recorded + buffers)
    if gradients := _gradient_bytes(graph):
        return gradients
    if not is_in(graph.tasks["phase"], "backward").any() and (
        weights := _weight_bytes(graph, PRODUCT + EMBEDDING)
    ):
        return weights
    device = hardware(graph)
    if device is None or device.memory_gbps is None:
        return 0.0
    try:
        return find_any_update(graph).pass_ns * device.memory_gbps * STREAMING
    except TransformError:
        return 0.0


def cast_bytes(graph: Graph) -> float:
    """Return what autocast keeps until backward: the weights of products, once more in 16 bits."""
    parameters = parameter_bytes(graph)
    return HALF * min(_weight_bytes(graph, PRODUCT) or parameters, parameters)


def optimizer_state_bytes(graph: Graph) -> float:
    """Return the bytes that the optimizer keeps: tensors of the parameters' size."""
    if not is_in(graph.tasks["phase"], "optimizer").any():
        return 0.0
    return parameter_bytes(graph) * _states(graph)


def gradients_stay(graph: Graph) -> bool:
    """Tell whether gradients are set to zero and kept, as `zero_grad` did until torch 2.0."""
    names = graph.operators["name"] if len(graph.operators) else graph.tasks["name"]
    zeroed = matches(names, ZEROES.pattern).sum()
    one_by_one = matches(names, "foreach_zero_").sum()
    tensors = matches(names, f"^{ACCUMULATE}$").sum()
    return bool(one_by_one or (zeroed and zeroed >= MANY * max(tensors, 1)))


def update_bytes(graph: Graph) -> float:
    """Return what the optimizer takes while it works: the foreach form of Adam, as much again."""
    kind = (graph.meta.optimizer or {}).get("kind")
    names = graph.tasks["name"]
    update = is_in(graph.tasks["phase"], "optimizer")
    foreach = update & matches(names, "multi_tensor_apply") & ~matches(names, ALREADY_FUSED.pattern)
    is_foreach = kind == "foreach" if kind else bool(foreach.any())
    return parameter_bytes(graph) if is_foreach and _states(graph) >= TWO_STATES else 0.0


def _gradient_bytes(graph: Graph) -> float:
    """Return the bytes of the gradients that one backward pass accumulates."""
    operators = graph.operators
    if not len(operators):
        return 0.0
    once = is_in(operators["name"], ACCUMULATE) & operators["shapes"].notna().to_numpy()
    once &= operators["step"].to_numpy() == operators["step"].to_numpy()[once].max(initial=-1)
    total = 0
    for shapes, dtypes in operators.loc[once, ["shapes", "dtypes"]].itertuples(index=False):
        total += math.prod(parse_shapes(str(shapes))[0]) * element_bytes(str(dtypes))
    return float(total)


def _weight_bytes(graph: Graph, named: str) -> float:
    """Return the bytes of the weights of the forward operators *named*, by their shapes."""
    operators = graph.operators
    if not len(operators):
        return 0.0
    once = operators["step"].to_numpy() == operators["step"].to_numpy().max()
    once &= operators["shapes"].notna().to_numpy() & matches(operators["name"], named)
    once &= ~is_in(operators["phase"], "backward")
    parents = set(operators["parent"].to_numpy()[once].tolist())
    total = 0
    for row in operators.index[once].tolist():
        if row in parents:
            continue
        name, shapes, dtypes = (str(operators.at[row, c]) for c in ("name", "shapes", "dtypes"))
        tensors = [shape for shape in parse_shapes(shapes) if len(shape) > 1]
        at = 0 if operator_class(name) == "embedding" else 1
        if len(tensors) > at:
            total += math.prod(tensors[at]) * element_bytes(dtypes)
    return float(total)


def _states(graph: Graph) -> int:
    """Return how many tensors of the parameters' size the optimizer keeps."""
    recorded = (graph.meta.optimizer or {}).get("state_passes")
    try:
        passes = int(recorded or find_any_update(graph).fused_passes)
    except TransformError:
        return 0
    return 2 if passes == FUSED_PASSES["lamb"] else (passes - FUSED_PASSES["sgd_plain"]) // 2
