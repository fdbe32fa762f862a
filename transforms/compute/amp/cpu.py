"""Mixed precision on a CPU: products at the probed bf16 rate, casts at the copy bandwidth."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from foretrace.errors import TransformError
from foretrace.transforms.costs.cpu_matmul import matmul_ns, nearest
from foretrace.transforms.costs.operators import autocast, parse_shapes, task_operator_classes
from foretrace.transforms.costs.rules import TOUCHED, halve_part, machine_rate
from foretrace.transforms.edit.columns import is_in
from foretrace.transforms.edit.primitives import insert, scale
from foretrace.transforms.edit.provenance import add_note
from foretrace.transforms.edit.select import require

if TYPE_CHECKING:
    import numpy.typing as npt

    from foretrace.graph.model import Graph
    from foretrace.transforms.edit.columns import Mask, Rows

CAST_BYTES = 6
"""A cast between 32 and 16 bits moves 6 bytes per element."""

MEMORY = ("pointwise", "reduce", "norm")


def amp_on_host(graph: Graph, dtype: str) -> Graph:
    """Return a CPU job under autocast.

    Raises
    ------
    TransformError
        *dtype* is fp16, the machine's rates are unknown, or there is no matrix product.
    """
    if dtype != "bf16":
        raise TransformError("dtype='fp16' is not supported on a CPU; use dtype='bf16'")
    rates = _rates(graph)
    classes = task_operator_classes(graph)
    training = ~is_in(graph.tasks["phase"], "optimizer", "load")
    host = is_in(graph.tasks["kind"], "host") & training
    is_matmul = host & np.isin(classes, ["gemm", "attention"])
    convolution = host & (classes == "conv")
    require(is_matmul | convolution, graph, "matrix product or convolution")
    peaks = np.where(classes == "attention", rates["attention"], rates["gemm"])
    peaks = np.where(convolution, rates["conv"], peaks)
    probed = _probed_factors(graph, host)
    inside = np.isfinite(probed)
    factor = np.where(inside, probed, peaks)
    changed = scale(graph, is_matmul | convolution | (host & inside), factor, cost="roofline")
    memory = host & np.isin(classes, MEMORY) & ~inside
    changed = scale(changed, memory, halve_part(TOUCHED), cost="prior")
    changed = _with_casts(changed, rates["cast_gbps"])
    return add_note(
        changed,
        f"amp: bf16 products take {rates['gemm']:.2f} times, convolutions {rates['conv']:.2f} "
        "times as long as in fp32 on this machine (probed)",
    )


def _rates(graph: Graph) -> dict[str, float]:
    fp32, bf16 = (machine_rate(graph, f"{dtype}_gflops") for dtype in ("fp32", "bf16"))
    cast = machine_rate(graph, "cast_gbps") or machine_rate(graph, "copy_gbps")
    if fp32 is None or bf16 is None or cast is None:
        raise TransformError(
            "amp on a CPU needs the machine's fp32, bf16 and copy rates; "
            "record the job with foretrace record, which probes them"
        )
    conv = [machine_rate(graph, f"conv_{dtype}_gflops") for dtype in ("fp32", "bf16")]
    ratio = conv[0] / conv[1] if conv[0] and conv[1] else fp32 / bf16
    products = (graph.meta.machine or {}).get("products") or {}
    fused = {p: rate[0][1] for p, rate in products.get("attention", {}).items()}
    attention = fused["fp32"] / fused["bf16"] if fused else fp32 / bf16
    return {"gemm": fp32 / bf16, "conv": ratio, "attention": attention, "cast_gbps": cast}


def _probed_factors(graph: Graph, where: Mask) -> npt.NDArray[np.float64]:
    """How much longer the tasks of each product take, by the probed rate of its kind.

    NaN where no rate is known. What a product calls (a bias copied, an unfolded image) is part of
    it; an operator that only contains a known product dispatches, and keeps its time.
    """
    machine = graph.meta.machine or {}
    rates, operator = machine.get("products"), graph.tasks["operator"].to_numpy()
    if not rates or not len(graph.operators):
        return np.full(len(operator), np.nan)
    after = matmul_ns(graph, rates, "bf16")
    is_matmul = np.isfinite(after)
    rows = np.where(is_matmul, np.arange(len(after), dtype=np.float64), np.nan)
    row = np.append(nearest(graph.operators["parent"].to_numpy(), rows), np.nan)[operator]
    row = np.nan_to_num(row, nan=-1).astype(np.int64)
    if machine.get("has_bf16"):
        before = matmul_ns(graph, rates, "fp32")
    else:
        spent = where & (row >= 0)
        work = graph.tasks["work_ns"].to_numpy()[spent]
        before = np.bincount(row[spent], work, len(after)).astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.append(after / before, np.nan)[row]
    ratio = np.where(np.isfinite(ratio), ratio, np.nan)
    return np.where(_only_contain_matmuls(graph, after) & (row < 0), 1.0, ratio)


def _only_contain_matmuls(graph: Graph, times: npt.NDArray[np.float64]) -> Mask:
    """Tasks of operators that only contain a known product: their own time is dispatching."""
    parent = graph.operators["parent"].to_numpy()
    around = np.zeros(len(parent) + 1, bool)
    above = parent[np.isfinite(times)]
    while len(above := np.unique(above[above >= 0])):
        around[above] = True
        above = parent[above]
    return around[graph.tasks["operator"].to_numpy()]


def _with_casts(graph: Graph, gbps: float) -> Graph:
    """Cast weights and biases before each product, and their gradients in backward."""
    forward, size = _parameters(graph)
    if not len(forward):
        return graph
    work = np.rint(size * CAST_BYTES / gbps).astype(np.int64)
    graph, _ = insert(
        graph,
        forward,
        place="before",
        name="autocast copy (predicted)",
        kind="host",
        work_ns=work,
        cost="roofline",
    )
    classes = task_operator_classes(graph)
    backward = np.flatnonzero(
        is_in(graph.tasks["phase"], "backward") & np.isin(classes, ["gemm", "conv"])
    )
    if not len(backward):
        return graph
    spread = backward[np.linspace(0, len(backward) - 1, len(forward)).round().astype(np.int64)]
    graph, _ = insert(
        graph,
        spread,
        name="autocast copy (predicted)",
        kind="host",
        work_ns=work,
        cost="roofline",
    )
    return graph


def _parameters(graph: Graph) -> tuple[Rows, Rows]:
    """Return the first task of each forward product with weights, and the weights' elements."""
    tasks, operators = graph.tasks, graph.operators
    operator = tasks["operator"].to_numpy()
    if not len(operators):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    low = np.array([autocast(str(n)) == "low" for n in operators["name"].cat.categories] + [False])
    chosen = low[operators["name"].cat.codes.to_numpy()]
    rows = np.flatnonzero(chosen[operator] & (operator >= 0) & is_in(tasks["phase"], "forward"))
    _, first = np.unique(operator[rows], return_index=True)
    rows = rows[np.sort(first)]
    weights = operators["shapes"].cat
    sizes = np.array([_weight_elements(str(t)) for t in weights.categories] + [0], np.int64)
    size = sizes[weights.codes.to_numpy()[operator[rows]]]
    return rows[size > 0], size[size > 0]


def _weight_elements(text: str) -> int:
    """Return the elements of all inputs but the first with as many dimensions as the largest."""
    shapes = [shape for shape in parse_shapes(text) if shape]
    tensors = [shape for shape in shapes if len(shape) > 1]
    return sum(math.prod(shape) for shape in tensors[1:])
