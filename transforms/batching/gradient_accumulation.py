"""Gradient accumulation: several batches per optimizer step."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from foretrace.errors import TransformError
from foretrace.graph.model import DEVICE_KINDS
from foretrace.transforms.collectives.all_reduces import gradient_exchanges
from foretrace.transforms.costs.optimizer_traffic import find_update
from foretrace.transforms.edit.columns import Mask, Rows, is_in
from foretrace.transforms.edit.parameters import whole
from foretrace.transforms.edit.primitives import insert, insert_kernels
from foretrace.transforms.edit.provenance import add_note, grow_samples
from foretrace.transforms.edit.remove import remove
from foretrace.transforms.edit.repeat import repeat
from foretrace.transforms.edit.select import call_of, has_device, require

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

ADD_PASSES = 3
"""Adding a gradient reads two values and writes one per parameter."""

MINOR = 0.1
"""Work around the update below this share of a step's host work is no batch of its own."""

NAME = "gradient accumulation (predicted)"


def gradient_accumulation(graph: Graph, *, k: int) -> Graph:
    """Run loading, forward and backward *k* times per optimizer step.

    Parameters
    ----------
    graph
        The job.
    k
        Batches per optimizer step. A step of the prediction is one optimizer step, that is k
        batches of the recorded size; samples per step grow k times.

    Notes
    -----
    Assumes: every batch costs what the recorded one costs; a model that is evaluated after the
    update is so once per update. From the second batch on, gradients
    are added to those there are: on an accelerator three memory passes over the parameters and one
    launch per tensor. On a CPU they are still in the cache, and what the sum costs is spared: no
    new memory is written, and weights are warm that the update has not touched in between.
    A DDP job exchanges its gradients once per optimizer step, with the last batch (``no_sync``).
    Unknown: what a job does that exchanges them with every batch.
    Source: pairs measured on CPUs (docs/accuracy.md); five networks of 3 to 34 MB, timed apart: a
    batch beside the first took -0.8 to +1.1 ms beyond it.

    Examples
    --------
    >>> from foretrace.graph.literal import literal
    >>> graph = literal([("fwd", "host", 0, 5, "forward"), ("bwd", "host", 0, 9, "backward"),
    ...                  ("update", "host", 0, 4, "optimizer")])
    >>> int(gradient_accumulation(graph, k=3).tasks.work_ns.sum())
    46
    """
    whole("k", k, 1)
    if k == 1:
        return graph
    update = is_in(graph.tasks["phase"], "optimizer")
    require(update, graph, "task in the optimizer phase")
    backward = require(is_in(graph.tasks["phase"], "backward"), graph, "task in the backward phase")
    repeated, copies = repeat(graph, per_batch(graph), k)
    repeated = _add_gradients(graph, repeated, backward, copies)
    repeated = _exchange_once(graph, repeated, copies)
    samples = graph.meta.batch_size
    meta = replace(graph.meta, batch_size=None if samples is None else samples * k)
    repeated = repeated.with_state(gradients_stay=True)
    return add_note(
        grow_samples(replace(repeated, meta=meta), k),
        f"gradient_accumulation: a step is {k} batches of the recording",
    )


def per_batch(graph: Graph) -> Mask:
    """Return the tasks that run once per batch: all but the update and what little surrounds it.

    What a step does before its first or after its last optimizer task belongs to the update
    (the end of the step's range, say) unless it is a real share of the step, or starts a backward
    pass after it: gradients may be zeroed just before that. A forward pass behind the update of a
    step that had one before it evaluates the model.
    """
    tasks = graph.tasks
    update = is_in(tasks["phase"], "optimizer")
    host = ~is_in(tasks["kind"], *DEVICE_KINDS)
    lane, step, start = (tasks[c].to_numpy().astype(np.int64) for c in ("lane", "step", "start_ns"))
    key = lane * (int(step.max()) + 1) + step
    keys = int(key.max()) + 1
    first, last = np.full(keys, np.iinfo(np.int64).max), np.full(keys, np.iinfo(np.int64).min)
    np.minimum.at(first, key[update & host], start[update & host])
    np.maximum.at(last, key[update & host], start[update & host])
    has_update = (first <= last)[key] & host & ~update
    work = tasks["work_ns"].to_numpy().astype(np.float64)
    total = np.bincount(key, weights=work * (host & ~update), minlength=keys)
    gone = np.zeros(len(tasks), bool)
    before, after = start < first[key], start > last[key]
    after &= ~_hands_over(graph, after & has_update, key, keys)[key]
    for side in (before, after):
        minor = side & has_update
        share = np.bincount(key, weights=work * minor, minlength=keys)
        gone |= minor & (share < MINOR * total)[key]
    forward = is_in(tasks["phase"], "forward")
    trains = np.bincount(key[before & has_update & forward], minlength=keys) > 0
    gone |= after & has_update & forward & trains[key]
    call = call_of(graph)
    gone |= (call >= 0) & gone[call]
    return ~update & ~gone


def _hands_over(graph: Graph, where: Mask, key: Rows, keys: int) -> Mask:
    """Tell, per lane and step, whether tasks *where* fork a forward or backward pass."""
    edges, phase = graph.edges, graph.tasks["phase"]
    fork = is_in(edges["kind"], "fork")
    src, dst = (edges[end].to_numpy()[fork] for end in ("src", "dst"))
    forks = where[src] & is_in(phase, "forward", "backward")[dst]
    return np.bincount(key[src[forks]], minlength=keys) > 0


def _add_gradients(graph: Graph, repeated: Graph, backward: Mask, copies: list[Rows]) -> Graph:
    """Add the gradients at the end of each backward pass but the first."""
    original = copies[0]
    if not has_device(graph):
        return add_note(repeated, "gradient_accumulation: adding gradients costs what it spares")
    try:
        update = find_update(graph)
    except TransformError:
        return add_note(repeated, "gradient_accumulation: adding gradients is not counted")
    last = _last_per_step(graph, backward & is_in(graph.tasks["kind"], "kernel"))
    anchors = _copies_of(last, original, copies[1:])
    repeated, rows = insert_kernels(
        repeated,
        anchors,
        name=f"{NAME} add",
        work_ns=round(ADD_PASSES * update.pass_ns),
        cost="roofline",
    )
    calls = call_of(repeated)[rows]
    calls = calls[calls >= 0]
    host_ns = update.tensors * graph.platform.launch_ns
    if len(calls):
        repeated, _ = insert(
            repeated, calls, name=NAME, kind="host", work_ns=host_ns, cost="roofline"
        )
    return repeated


def _exchange_once(graph: Graph, repeated: Graph, copies: list[Rows]) -> Graph:
    """Take DDP's exchanges out of all batches but the last."""
    exchanges = gradient_exchanges(graph)[copies[0]]
    gone = np.zeros(len(repeated.tasks), bool)
    for rows in copies[:-1]:
        gone[rows[exchanges]] = True
    return remove(repeated, gone)


def _last_per_step(graph: Graph, where: Mask) -> Rows:
    rows = np.flatnonzero(where)
    step = graph.tasks["step"].to_numpy()[rows]
    order = np.lexsort((-rows, -graph.tasks["start_ns"].to_numpy()[rows], step))
    _, first = np.unique(step[order], return_index=True)
    return rows[order][first]


def _copies_of(rows: Rows, original: Rows, copies: list[Rows]) -> Rows:
    """Return the copies of *rows*, copy by copy."""
    place = np.searchsorted(original, rows)
    return np.concatenate([copy[place] for copy in copies])
