"""A fused optimizer: one kernel, or a few, instead of a loop over parameters."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from foretrace.errors import TransformError
from foretrace.transforms.compute.fused_on_host import fuse_on_host
from foretrace.transforms.costs.assumed import Assumed
from foretrace.transforms.costs.optimizer_traffic import (
    FUSED_PASSES,
    Update,
    find_update,
)
from foretrace.transforms.costs.peak_memory import change_memory
from foretrace.transforms.edit.columns import Mask, Rows, is_in, matches, pad
from foretrace.transforms.edit.parameters import choice
from foretrace.transforms.edit.primitives import insert, insert_kernels
from foretrace.transforms.edit.provenance import add_note
from foretrace.transforms.edit.remove import remove
from foretrace.transforms.edit.select import (
    call_of,
    first_per_step,
    has_device,
)

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

KINDS = ("fused", "foreach")
PER_TENSOR = Assumed(
    "collecting gradient and state of one parameter tensor for a fused update, ns",
    *(5_000, 2_000, 12_000),
    "an estimate of this project for PyTorch 2; no published figure was found",
    more_is_longer=True,
)

PASSES_PER_FUNCTOR = 2.5
"""Passes one foreach kernel makes on average (Adam: about 21 passes in 8 operations)."""


def fused_optimizer(graph: Graph, *, kind: str = "fused", optimizer: str | None = None) -> Graph:
    """Update all parameters in one fused kernel instead of operation by operation.

    Parameters
    ----------
    graph
        The job.
    kind
        "fused", or "foreach": the same memory passes in few launches.
    optimizer
        "adam", "adamw", "lamb", "sgd" (with momentum), "sgd_plain", "adagrad", "rmsprop" or
        "lion", where neither the recording nor the kernels' names tell.

    Notes
    -----
    Assumes: time goes into memory passes. Those of the removed kernels are counted, and a fused
    step makes 7 (Adam, AdamW), 5 (SGD with momentum, Adagrad, RMSprop, Lion), 3 (plain SGD) or
    12 (LAMB). The loop's host time goes away.
    Unscaling, gradient clipping and zeroing stay. On a CPU a fused step takes its passes at the
    rate probed for such updates, and foreach gains nothing; of several optimizers each keeps its
    own parameters, and those that have no fused form (SparseAdam) stay as they are.
    Unknown: caches left warm by the shorter update; arithmetic that is no longer free. In the
    pair P14 the fused Adam of PyTorch 2.1 takes the time of 13 passes, that of apex in P8 7.3.
    Source: the U-Net pair P8, and pairs measured on CPUs (docs/accuracy.md).

    Examples
    --------
    >>> from foretrace.graph.literal import literal
    >>> pointers = "elementwise_kernel<at::detail::Array<char*, {}>>"
    >>> names = ["mul " + pointers.format(2), "addcdiv " + pointers.format(4)]
    >>> graph = literal(
    ...     [("launch", "launch", 0, 9, "optimizer")] * 2
    ...     + [(name, "kernel", 1, 60_000, "optimizer") for name in names],
    ...     [(0, 2, "launch"), (1, 3, "launch")],
    ... )
    >>> fused_optimizer(graph).tasks[["kind", "work_ns"]].values.tolist()
    [['kernel', 141922], ['launch', 6000], ['host', 5000]]
    """
    choice("kind", kind, KINDS)
    if optimizer is not None:
        choice("optimizer", optimizer, FUSED_PASSES)
        recorded = graph.meta.optimizer or {}
        if recorded.get("state_passes", FUSED_PASSES[optimizer]) != FUSED_PASSES[optimizer]:
            name = recorded.get("name", "another")
            raise TransformError(
                f"optimizer={optimizer!r} contradicts this job (optimizer: {name}); leave it out"
            )
    if not has_device(graph):
        return fuse_on_host(graph, partial(fused_optimizer, kind=kind))
    update = find_update(graph, optimizer)
    if kind == "foreach":
        return _foreach(graph, update)
    return _replace_update(
        change_memory(graph, 0.0, "update"),
        update,
        name="multi_tensor_apply_kernel<FusedOptimizer> (predicted)",
        launches=update.launches,
        total_ns=update.fused_ns,
    )


def _foreach(graph: Graph, update: Update) -> Graph:
    names = graph.tasks["name"]
    if (update.where & matches(names, "multi_tensor_apply")).any():
        raise TransformError("the optimizer runs as foreach already; try kind='fused'")
    operations = max(1, round(update.memory_passes / PASSES_PER_FUNCTOR))
    return _replace_update(
        graph,
        update,
        name="multi_tensor_apply_kernel<foreach> (predicted)",
        launches=update.launches * operations,
        total_ns=update.pass_ns * update.memory_passes + operations * update.floor_ns,
    )


def _replace_update(
    graph: Graph, update: Update, *, name: str, launches: int, total_ns: float
) -> Graph:
    """Put *launches* kernels where the update was, and take its kernels and host loop out."""
    first = first_per_step(graph, update.where)
    gone = update.where | _host_loop(graph, update.where)
    anchors = np.repeat(first, launches)
    graph, rows = insert_kernels(
        graph,
        anchors,
        place="before",
        name=name,
        work_ns=round(total_ns / launches),
        cost="roofline",
    )
    calls = _calls(graph, rows[::launches])
    if len(calls):
        host_ns = round(PER_TENSOR.now() * update.tensors)
        graph, _ = insert(
            graph,
            calls,
            place="before",
            name="Optimizer.step (predicted)",
            kind="host",
            work_ns=host_ns,
            cost="prior",
        )
    graph = remove(graph, pad(gone, len(graph.tasks)), gaps="drop")
    return add_note(
        graph,
        f"fused_optimizer: {update.memory_passes:.0f} memory passes over {update.tensors} tensors "
        f"become {update.fused_passes if 'Fused' in name else update.memory_passes:.0f}",
    )


def _calls(graph: Graph, kernels: Rows) -> Rows:
    """Return the calls that launch *kernels*."""
    calls = call_of(graph)[kernels]
    return calls[calls >= 0]


def _host_loop(graph: Graph, kernels: Mask) -> Mask:
    """Return the host tasks between the first and the last launch of the update in each step."""
    tasks = graph.tasks
    calls = _calls(graph, np.flatnonzero(kernels))
    start, step, lane = (tasks[c].to_numpy().astype(np.int64) for c in ("start_ns", "step", "lane"))
    steps = int(step.max(initial=0)) + 1
    key = lane * steps + step
    low = np.full(int(key.max(initial=0)) + 1, np.iinfo(np.int64).max)
    high = np.full(len(low), -1)
    np.minimum.at(low, key[calls], start[calls])
    np.maximum.at(high, key[calls], start[calls])
    between = (start >= low[key]) & (start <= high[key])
    return between & is_in(tasks["kind"], "host") & is_in(tasks["phase"], "optimizer")
