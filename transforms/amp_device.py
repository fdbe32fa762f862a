"""Mixed precision on an accelerator: kernels scaled by class, casts and scaler inserted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from foretrace.errors import TransformError
from foretrace.transforms.columns import Mask, Rows, is_in, matches
from foretrace.transforms.costs import (
    TOUCHED,
    WINOGRAD,
    Cost,
    attention_speedup,
    floor_ns,
    matrix_speedup,
    model_streams,
    partly_halved,
    shortened,
)
from foretrace.transforms.devices import Hardware, hardware
from foretrace.transforms.kernels import classes, precisions
from foretrace.transforms.passes import Update, find_any_update
from foretrace.transforms.primitives import edge_rows, insert, insert_kernels, scale
from foretrace.transforms.scenario import noted
from foretrace.transforms.selection import first_per_step, launch_edges

if TYPE_CHECKING:
    import numpy.typing as npt

    from foretrace.graph.model import Graph

MATRIX = ("gemm", "conv")
BATCH_NORM = r"(?i)batch_?norm|(^|[\W_])bn_"
FP32_NORM = r"(?i)layer_?norm|group_?norm|rms_?norm"
BATCH_NORM_TOUCHED = 0.8
"""Share of a batch norm's bytes that are activations, which it takes in 16 bits."""

CAST_TO_NORM = 0.75
"""A cast moves 6 bytes per element where an fp32 norm moves 8."""

CAST_PASSES = 1.5
"""Casting all weights reads 4 and writes 2 bytes per parameter: passes of 4 bytes."""

UNSCALE_PASSES = 2
FOUND_INF_BYTES = 4
COPY_NS = 1_500
"""Device time of a copy of a few bytes (all public traces: 1 to 2 us)."""


@dataclass(frozen=True)
class _Kernels:
    """The kernels of a graph that autocast may touch, by class and precision."""

    graph: Graph

    @cached_property
    def classes(self) -> npt.NDArray[np.str_]:
        return classes(self.graph.tasks["name"])

    @cached_property
    def precisions(self) -> npt.NDArray[np.str_]:
        return precisions(self.graph.tasks["name"])

    @cached_property
    def touched(self) -> Mask:
        tasks = self.graph.tasks
        where = is_in(tasks["kind"], "kernel") & model_streams(self.graph, self.classes)
        return where & ~is_in(tasks["phase"], "optimizer", "load", "communication")

    def of(self, *names: str) -> Mask:
        """Return the kernels of these classes that compute in fp32 or TF32."""
        wide = np.isin(self.precisions, ["fp32", "tf32", "unknown"])
        return self.touched & wide & np.isin(self.classes, names)


def amp_on_device(graph: Graph, dtype: str, attention: str) -> Graph:
    """Return *graph* under autocast to *dtype* on its accelerator."""
    kernels = _Kernels(graph)
    device = hardware(graph)
    if device is not None and dtype == "bf16" and device.peak("bf16") is None:
        raise TransformError(f"dtype='bf16': {device.name} has no bf16 units; use dtype='fp16'")
    matrix = kernels.of(*MATRIX) & np.isin(kernels.precisions, ["fp32", "tf32"])
    heavy = matrix | (kernels.of("attention") & (kernels.precisions == "fp32"))
    if not heavy.any():
        raise TransformError("nothing to change: no fp32 or TF32 matrix product in this graph")
    update = _update(graph)
    scaled = _scaled(graph, kernels, device, dtype, attention)
    scaled = _weight_casts(scaled, kernels, matrix, update)
    scaled = _norm_casts(scaled, kernels)
    notes = [f"amp: attention kernels after the change are {attention}"] * bool(
        (heavy & ~matrix).any()
    )
    if dtype == "fp16":
        scaled = _scaler(scaled, update)
        notes.append("amp: the gradient scaler waits for the device once per step")
    if device is None:
        notes.append("amp: the device is not in the table, so published constants were used")
    return noted(scaled, *notes)


def _scaled(
    graph: Graph, kernels: _Kernels, device: Hardware | None, dtype: str, attention: str
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
    memory = Cost(1 / partly_halved(TOUCHED), "roofline")
    norm = Cost(1 / partly_halved(BATCH_NORM_TOUCHED), "roofline")
    rules = (
        (matrix & is_tf32, tf32),
        (matrix & is_fp32 & ~winograd, simt),
        (matrix & is_fp32 & winograd, spared),
        (kernels.of("attention") & is_fp32, attention_speedup(attention, dtype, device)),
        (kernels.of("pointwise", "reduce") & is_fp32, memory),
        (batch_norm & is_fp32, norm),
    )
    work = graph.tasks["work_ns"].to_numpy()
    for where, (speedup, source) in rules:
        new = shortened(work, 1 / speedup, floor)
        graph = scale(graph, where, new / np.maximum(work, 1), cost=source)
    return graph


def _update(graph: Graph) -> Update | None:
    """Return the optimizer's memory passes, from which the parameters' size follows."""
    try:
        return find_any_update(graph)
    except TransformError:
        return None


def _weight_casts(graph: Graph, kernels: _Kernels, matrix: Mask, update: Update | None) -> Graph:
    """Cast each weight (and bias) before its product, and each gradient after."""
    tasks = kernels.graph.tasks
    backward = np.flatnonzero(matrix & is_in(tasks["phase"], "backward"))
    forward = np.flatnonzero(matrix & ~is_in(tasks["phase"], "backward"))
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


def _scaler(graph: Graph, update: Update | None) -> Graph:
    """Unscale the gradients before the update, and wait for the verdict on the host."""
    if update is None:
        raise TransformError(
            "dtype='fp16' needs the optimizer phase to place the gradient scaler, and this "
            "trace has none; use dtype='bf16'"
        )
    where = np.append(update.where, np.zeros(len(graph.tasks) - len(update.where), bool))
    first = first_per_step(graph, where)
    earlier = _other_threads_call(graph, first)
    launches = update.launches
    work = round(UNSCALE_PASSES * update.pass_ns / launches) + update.floor_ns
    graph, _ = insert_kernels(
        graph,
        np.repeat(first, launches),
        place="before",
        name="multi_tensor_apply_kernel<unscale> (predicted)",
        work_ns=work,
        cost="roofline",
    )
    edges = launch_edges(graph)[first]
    first, edges, earlier = first[edges >= 0], edges[edges >= 0], earlier[edges >= 0]
    calls = graph.edges["src"].to_numpy()[edges].astype(np.int64)
    if not len(calls):
        return graph
    graph, copies = insert(
        graph,
        first,
        place="before",
        name="Memcpy DtoH (Device -> Pageable)",
        kind="memcpy",
        work_ns=COPY_NS,
        bytes=FOUND_INF_BYTES,
        cost="prior",
    )
    graph, waits = insert(
        graph,
        calls,
        place="before",
        name="cudaMemcpyAsync",
        kind="launch",
        wait="own",
        return_ns=graph.platform.return_lag_ns,
        work_ns=graph.platform.launch_ns,
        cost="prior",
    )
    lag = graph.platform.launch_latency_ns
    edges = edge_rows(graph.edges, waits, copies, "launch", lag)
    edges = edge_rows(edges, earlier[earlier >= 0], waits[earlier >= 0], "join", 0)
    return replace(graph, edges=edges)


def _other_threads_call(graph: Graph, kernels: Rows) -> Rows:
    """Return, per kernel, the last call of another thread that launched earlier on its stream.

    −1 where its step has none. A call that blocks until the stream is done must come after it,
    also where the recording does not show how the threads wait for each other: else it would
    hold the driver's lock against the launch that it waits for.
    """
    now = graph.edges["shift"].to_numpy() == 0
    call, before = (
        _sources(graph, is_in(graph.edges["kind"], kind) & now) for kind in ("launch", "stream")
    )
    lane = graph.tasks["lane"].to_numpy()
    own, at = lane[call[kernels]], before[kernels]
    while (on := (at >= 0) & ((call[at] < 0) | (lane[call[at]] == own))).any():
        at[on] = before[at[on]]
    return np.where(at >= 0, call[at], -1)


def _sources(graph: Graph, edges: Mask) -> Rows:
    """Return, per task, where one of *edges* comes from; −1 where none leads to it."""
    found = np.full(len(graph.tasks), -1, np.int64)
    src, dst = (graph.edges[c].to_numpy()[edges] for c in ("src", "dst"))
    found[dst] = src
    return found
