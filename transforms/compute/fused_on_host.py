"""A fused optimizer on a CPU: each update of a step becomes one that streams its parameters."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foretrace.errors import TransformError
from foretrace.transforms.costs.operators import parse_shapes
from foretrace.transforms.costs.optimizer_traffic import FUSED_PASSES, WIDTH, host_update
from foretrace.transforms.costs.rules import machine_rate
from foretrace.transforms.edit.columns import pad
from foretrace.transforms.edit.primitives import insert
from foretrace.transforms.edit.provenance import add_note
from foretrace.transforms.edit.remove import remove
from foretrace.transforms.edit.select import first_per_step, require
from foretrace.transforms.measured.change import name_of, parameters_of
from foretrace.transforms.measured.segments import apply_measured_update

if TYPE_CHECKING:
    from foretrace.graph.model import Graph
    from foretrace.graph.state import OptimizerUpdate
    from foretrace.transforms.edit.columns import Mask
    from foretrace.transforms.measured.change import Transform

TENSOR_NS = 2_500
"""Host time per tensor of a fused Adam, whose tensors had 8 elements: 25, 54 and 172 us for 4, 16
and 64 of them (PyTorch 2, an EPYC; SGD: a third)."""

USUAL_PASSES = FUSED_PASSES["adam"]
LEFT_OUT = "have no fused form, or none that the recording shows, and stay"


class _Streamed(NamedTuple):
    """One update: its tasks, and the memory that a fused one streams."""

    where: Mask
    size: float
    passes: int
    tensors: int


def fuse_on_host(graph: Graph, change: Transform) -> Graph:
    """Replace the host tasks of each update by one that streams its parameters through memory."""
    kind = parameters_of(change)["kind"]
    recorded = graph.meta.optimizer or {}
    where = host_update(graph)
    require(where, graph, "host task in the optimizer phase")
    if recorded.get("kind") == kind:
        raise TransformError(f"the optimizer runs as {kind} already; there is nothing to change")
    updates, graph = _split(graph, where)
    fused = np.logical_or.reduce([each.where for each in updates])
    if measured := apply_measured_update(graph, fused, change):
        return measured
    if kind == "foreach":
        return add_note(graph, "fused_optimizer: on a CPU foreach takes as long as the loop")
    rate = machine_rate(graph, "update_gbps") or machine_rate(graph, "copy_gbps")
    if rate is None or not all(each.size for each in updates):
        raise TransformError(
            f"{name_of(change)} on a CPU needs the parameters' bytes and the machine's memory "
            "rates; record the job with foretrace record, and give it optimizer=..."
        )
    changed = graph
    for each in updates:
        changed, _ = insert(
            changed,
            first_per_step(graph, each.where),
            place="before",
            name="fused optimizer step (predicted)",
            kind="host",
            work_ns=round(each.passes * each.size / rate) + TENSOR_NS * each.tensors,
            cost="roofline",
        )
    changed = remove(changed, pad(fused, len(changed.tasks)), gaps="drop")
    for each in updates:
        text = f"{each.passes} passes over {each.size:.3g} B at {rate:.3g} GB/s"
        changed = add_note(changed, f"fused_optimizer: {text}")
    return changed


def _split(graph: Graph, where: Mask) -> tuple[list[_Streamed], Graph]:
    """Return the updates that can be fused, and the graph with a note on the others."""
    recorded = graph.meta.optimizer or {}
    known = [_streamed(graph, where, each) for each in graph.state.updates]
    if not known:
        size, passes = recorded.get("bytes") or 0.0, recorded.get("state_passes", USUAL_PASSES)
        return [_Streamed(where, size, passes, int(recorded.get("tensors") or 0))], graph
    found = [each for each in known if each is not None and each.where.any()]
    if not found:
        raise TransformError(f"nothing to fuse: the {len(known)} optimizers {LEFT_OUT}")
    pairs = zip(graph.state.updates, known, strict=True)
    left = [update.optimizer for update, streamed in pairs if streamed is None]
    text = f"fused_optimizer: the updates of {', '.join(left)} {LEFT_OUT}"
    return found, add_note(graph, text) if left else graph


def _streamed(graph: Graph, where: Mask, update: OptimizerUpdate) -> _Streamed | None:
    """Return what a fused form of one of several updates streams; None where it has no such form.

    A loop over tensors ends each with one ``addcdiv_`` (Adam's kind and Adagrad) or, of SGD, with
    an ``add_``, before which its momentum, if it has any, takes another one.
    """
    name, steps = update.optimizer.lower(), graph.steps
    if name not in FUSED_PASSES:
        return None
    rows = np.array(update.operators, np.int64)
    names = graph.operators["name"].astype(str).to_numpy()[rows]
    ends = "aten::add_" if name == "sgd" else "aten::addcdiv_"
    passes = FUSED_PASSES[name]
    if name == "sgd":
        has_momentum = bool((names == "aten::mul_").any())
        passes, steps = (passes, 2 * steps) if has_momentum else (FUSED_PASSES["sgd_plain"], steps)
    texts = map(str, graph.operators["shapes"].to_numpy()[rows[names == ends]])
    sizes = [math.prod(shapes[0] or ()) for shapes in map(parse_shapes, texts) if shapes]
    if not sizes:
        return None
    own = np.zeros(len(graph.operators) + 1, bool)
    own[rows] = True
    inside = where & own[graph.tasks["operator"].to_numpy()]
    return _Streamed(inside, WIDTH * sum(sizes) / steps, passes, len(sizes) // steps)
