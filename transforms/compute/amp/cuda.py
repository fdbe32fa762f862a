"""Mixed precision on an accelerator: kernels scaled by class, casts and scaler inserted."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from foretrace.errors import TransformError
from foretrace.transforms.compute.amp.grad_scaler import add_scaler
from foretrace.transforms.costs.attention_library import Library, assumed_share
from foretrace.transforms.costs.devices import Hardware, hardware
from foretrace.transforms.costs.kernel_names import MATRIX, classes, precisions
from foretrace.transforms.costs.kernels import Kernels
from foretrace.transforms.costs.operators import autocast
from foretrace.transforms.costs.optimizer_traffic import Update, find_any_update
from foretrace.transforms.costs.rules import (
    TOUCHED,
    WINOGRAD,
    Cost,
    attention_speedup,
    floor_ns,
    halve_part,
    matrix_speedup,
    model_streams,
    shorten,
)
from foretrace.transforms.edit.columns import Mask, Rows, by_category, is_in, matches
from foretrace.transforms.edit.primitives import insert_kernels, scale
from foretrace.transforms.edit.provenance import add_note
from foretrace.transforms.edit.select import within_operator

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from foretrace.graph.model import Graph

BATCH_NORM = r"(?i)batch_?norm|(^|[\W_])bn_"
FP32_NORM = r"(?i)layer_?norm|group_?norm|rms_?norm"
FP32_KERNEL = r"::(pow|exp|log|reciprocal|rsqrt|acos|asin|cosh|sinh|tan|erfinv|softplus)_?\w*kernel"
"""Element-wise kernels of operators that autocast runs in fp32, as PyTorch names them."""
MOSTLY = 0.9
"""From this share of 16-bit products on, a job runs under mixed precision already."""
UNWEIGHTED = r"::(baddbmm|bmm)$"
"""Products of two activations: no weight to cast."""
BATCH_NORM_TOUCHED = 0.8
"""Share of a batch norm's bytes that are activations, which it takes in 16 bits."""

CAST_TO_NORM = 0.75
"""A cast moves 6 bytes per element where an fp32 norm moves 8."""

CAST_PASSES = 1.5
"""Casting all weights reads 4 and writes 2 bytes per parameter: passes of 4 bytes."""


@dataclass(frozen=True)
class _Kernels:
    """The kernels of a graph that autocast may touch, by class and precision."""

    graph: Graph

    @cached_property
    def classes(self) -> npt.NDArray[np.str_]:
        return classes(self.graph.tasks["name"])

    @cached_property
    def precisions(self) -> npt.NDArray[np.str_]:
        """Precision by name; of what a what-if moved to TF32, that."""
        named = precisions(self.graph.tasks["name"])
        if not self.graph.state.tf32:
            return named
        moved = np.isin(Kernels(self.graph).classes, self.graph.state.tf32)
        return np.where(moved & (named == "fp32"), "tf32", named)

    @cached_property
    def touched(self) -> Mask:
        tasks = self.graph.tasks
        where = is_in(tasks["kind"], "kernel") & model_streams(self.graph, self.classes)
        return where & ~is_in(tasks["phase"], "optimizer", "load", "communication")

    @cached_property
    def narrow_share(self) -> float:
        """Share of the time of matrix products and attention that runs in 16 or 8 bits."""
        work = self.graph.tasks["work_ns"].to_numpy()
        products = self.touched & np.isin(self.classes, (*MATRIX, "attention"))
        narrow = products & np.isin(self.precisions, ["fp16", "bf16", "fp8"])
        return float(work[narrow].sum() / max(work[products].sum(), 1))

    @cached_property
    def kept_wide(self) -> Mask:
        """Kernels of operators on autocast's fp32 list; in backward known by name only."""
        tasks, operators = self.graph.tasks, self.graph.operators
        wide_kernels = matches(tasks["name"], FP32_KERNEL)
        if len(operators):
            wide = by_category(operators["name"], lambda name: autocast(name) == "fp32")
            operator = tasks["operator"].to_numpy()
            wide_kernels |= wide[operator] & (operator >= 0) & is_in(tasks["phase"], "forward")
        return wide_kernels

    def of(self, *names: str) -> Mask:
        """Return the kernels of these classes that compute in fp32 or TF32."""
        wide = np.isin(self.precisions, ["fp32", "tf32", "unknown"])
        return self.touched & wide & np.isin(self.classes, names)


def amp_on_device(graph: Graph, dtype: str, library: Library) -> Graph:
    """Return *graph* under autocast to *dtype* on its accelerator."""
    kernels = _Kernels(graph)
    device = hardware(graph)
    if device is not None and dtype == "bf16" and device.peak("bf16") is None:
        raise TransformError(f"dtype='bf16': {device.name} has no bf16 units; use dtype='fp16'")
    matrix = kernels.of(*MATRIX) & np.isin(kernels.precisions, ["fp32", "tf32"])
    heavy = matrix | (kernels.of("attention") & (kernels.precisions == "fp32"))
    if not heavy.any() or kernels.narrow_share > MOSTLY:
        raise TransformError(
            "nothing to change: no fp32 or TF32 matrix product in this graph"
            if not heavy.any()
            else f"nothing to change: no more than {1 - kernels.narrow_share:.1%} of the time of "
            "matrix products is not in 16 bits already"
        )
    update = _update(graph)
    scaled = _scale_kernels(graph, kernels, device, dtype, library)
    scaled = _weight_casts(scaled, kernels, matrix, update)
    scaled = _norm_casts(scaled, kernels)
    notes = [_say_library(library)] if (heavy & ~matrix).any() else []
    if dtype == "fp16" and update is not None:
        scaled = add_scaler(scaled, update)
        notes.append("amp: the gradient scaler waits for the device once per step")
    elif dtype == "fp16":
        notes.append("amp: this trace has no optimizer phase, so the gradient scaler is left out")
    if device is None:
        notes.append("amp: the device is not in the table, so published constants were used")
    return add_note(scaled, *notes)


def _scale_kernels(
    graph: Graph, kernels: _Kernels, device: Hardware | None, dtype: str, library: Library
) -> Graph:
    """Scale every class of kernels by its own rule."""
    floor = floor_ns(graph)
    names = graph.tasks["name"]
    uses_tf32 = bool((kernels.of(*MATRIX) & (kernels.precisions == "tf32")).any())
    tf32 = matrix_speedup("tf32", dtype, device, uses_tf32=True)
    simt = matrix_speedup("fp32", dtype, device, uses_tf32=uses_tf32)
    spared = Cost(max(1.0, simt.factor / WINOGRAD), simt.source)
    matrix = kernels.of(*MATRIX)
    is_tf32, is_fp32 = kernels.precisions == "tf32", kernels.precisions == "fp32"
    winograd = matches(names, "(?i)winograd")
    batch_norm = kernels.of("norm") & matches(names, BATCH_NORM)
    memory = Cost(1 / halve_part(TOUCHED), "roofline")
    norm = Cost(1 / halve_part(BATCH_NORM_TOUCHED), "roofline")
    rules = (
        (matrix & is_tf32, tf32),
        (matrix & is_fp32 & ~winograd, simt),
        (matrix & is_fp32 & winograd, spared),
        *_attention_rule(kernels, device, dtype, library),
        (kernels.of("pointwise", "reduce") & is_fp32 & ~kernels.kept_wide, memory),
        (batch_norm & is_fp32, norm),
    )
    work = graph.tasks["work_ns"].to_numpy()
    for where, (speedup, source) in rules:
        new = shorten(work, 1 / speedup, floor)
        graph = scale(graph, where, new / np.maximum(work, 1), cost=source)
    return graph


def _attention_rule(
    kernels: _Kernels, device: Hardware | None, dtype: str, library: Library
) -> Iterator[tuple[Mask, Cost]]:
    """Yield the fp32 attention kernels, where there are any, and their gain."""
    where = kernels.of("attention") & (kernels.precisions == "fp32")
    if where.any():
        share = None
        if device is not None and not library.known_by:
            share = assumed_share(library.name, device)
        yield where, attention_speedup(library.name, dtype, device, share)


def _say_library(library: Library) -> str:
    text = f"amp: attention kernels after the change are {library.name}"
    told = "" if library.known_by == "the question" else f" ({library.known_by})"
    return text + (told if library.known_by else " (today's: the recording does not tell)")


def _update(graph: Graph) -> Update | None:
    """Return the optimizer's memory passes, from which the parameters' size follows."""
    try:
        return find_any_update(graph)
    except TransformError:
        return None


def _weight_casts(graph: Graph, kernels: _Kernels, matrix: Mask, update: Update | None) -> Graph:
    """Cast each weight (and bias) before its product, and each gradient after."""
    tasks = kernels.graph.tasks
    matrix = matrix & ~within_operator(kernels.graph, UNWEIGHTED)
    behind = is_in(tasks["phase"], "backward")
    backward, forward = (_products(kernels.graph, matrix & w) for w in (behind, ~behind))
    if not len(forward):
        return graph
    reduces = int((kernels.of("reduce") & is_in(tasks["phase"], "backward")).sum())
    biases = forward[: min(len(forward), reduces)]
    floor = floor_ns(kernels.graph)
    each = floor
    if update is not None:
        each = max(floor, round(CAST_PASSES * update.pass_ns * graph.steps / len(forward)))
    anchors = np.concatenate([forward, biases])
    work = np.where(np.arange(len(anchors)) < len(forward), each, floor)
    graph = _cast(graph, anchors, "before", work, "prior" if update is None else "roofline")
    if len(backward):
        graph = _cast(graph, _spread(backward, len(anchors)), "after", work, "roofline")
    return graph


def _products(graph: Graph, kernels: Mask) -> Rows:
    """Return the first of *kernels* of each operator, and all of those without one."""
    rows = np.flatnonzero(kernels)
    operator = graph.tasks["operator"].to_numpy().astype(np.int64)[rows]
    key = np.where(operator >= 0, operator, -1 - np.arange(len(rows)))
    _, first = np.unique(key, return_index=True)
    return rows[np.sort(first)]


def _norm_casts(graph: Graph, kernels: _Kernels) -> Graph:
    """Cast the fp32 output of each layer norm, and in backward its gradient on both sides."""
    tasks = kernels.graph.tasks
    norms = kernels.of("norm") & matches(tasks["name"], FP32_NORM)
    backward = is_in(tasks["phase"], "backward")
    ahead = np.flatnonzero(norms & ~backward)
    behind = np.flatnonzero(norms & backward)
    if not len(ahead):
        return graph
    work = np.rint(tasks["work_ns"].to_numpy()[ahead] * CAST_TO_NORM).astype(np.int64)
    graph = _cast(graph, ahead, "after", work, "roofline")
    if len(behind):
        for place in ("before", "after"):
            graph = _cast(graph, _spread(behind, len(ahead)), place, work, "roofline")
    return graph


def _cast(graph: Graph, anchors: Rows, place: str, work: npt.NDArray[np.int64], cost: str) -> Graph:
    graph, _ = insert_kernels(
        graph, anchors, place=place, name="autocast copy (predicted)", work_ns=work, cost=cost
    )
    return graph


def _spread(rows: Rows, count: int) -> Rows:
    """Return *count* of *rows*, evenly spread (some twice when there are fewer)."""
    return rows[np.linspace(0, len(rows) - 1, count).round().astype(np.int64)]
