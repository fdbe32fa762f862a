"""Activation checkpointing: a second forward pass instead of kept activations."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from foretrace.errors import TransformError
from foretrace.graph.state import ActivationChange
from foretrace.transforms.costs.assumed import Assumed
from foretrace.transforms.costs.operators import operator_class
from foretrace.transforms.costs.peak_memory import change_activations
from foretrace.transforms.edit.columns import Mask, Rows, is_in, matches, set_label
from foretrace.transforms.edit.primitives import chain, edge_rows, insert
from foretrace.transforms.edit.provenance import add_note, mark_measured
from foretrace.transforms.edit.select import call_of, modules_matching, on_device, require
from foretrace.transforms.measured.segments import segment_ns

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

SEGMENT = Assumed(
    "checkpointed call beside the forward itself (random state, hooks), ns",
    *(240_000, 110_000, 300_000),
    "measured on a CPU with cold caches, torch 2.13; a hot loop shows 110,000",
    more_is_longer=True,
)

SAVED = {"norm": 6, "attention": 6, "conv": 2, "gemm": 2, "pointwise": 1, "softmax": 1}
"""Tensors that an operator of a class keeps for its backward (PyTorch's derivatives.yaml)."""

SAVED_TENSOR = Assumed(
    "checkpointing per kept tensor (packed twice, unpacked), ns",
    *(20_000, 12_600, 30_000),
    "the slope over chains of 5 to 60 operators on a CPU, each between other work of 1.2 MB; "
    "without that work, caches warm, it is 12,600; measured after the pairs had shown too little",
    ("cpu-epyc-1 and -2: checkpointing",),
    more_is_longer=True,
)

CARRIED = (
    "name",
    "work_ns",
    "module",
    "operator",
    "bytes",
    "flops",
    "blocks",
    "fill",
    "wait",
    "wait_lane",
    "return_ns",
    "lock",
    "cost",
)
"""What a recomputed task has in common with the recorded one."""


def activation_checkpoint(graph: Graph, *, modules: str | None = None) -> Graph:
    r"""Run the forward pass of some modules again just before their backward pass.

    Parameters
    ----------
    graph
        The job, recorded with its modules.
    modules
        Regular expression for whole parts of a module's path, each match a checkpointed call:
        "blocks\.\d+". By default the network's repeated blocks: the numbered parts of its
        outermost lists. Without modules in the trace, the whole forward pass is one call.

    Notes
    -----
    Assumes: the second forward pass costs what the recorded one costs, host time included. A
    checkpointed call costs the host 0.24 ms more (saved random state), and 10 us for each tensor
    that its operators keep for backward (hooks).
    Of the activations in a call only its input is kept; the others come again when the first of
    them is needed.
    Unknown: what a bigger batch would make of the freed memory; a recomputation that stops early
    because its last operators saved nothing.
    Source: pairs measured on CPUs; the constant was measured apart from them.

    Examples
    --------
    >>> import pandas as pd
    >>> from foretrace.graph.literal import literal
    >>> graph = literal([("fwd", "host", 0, 50, "forward"), ("bwd", "host", 0, 90, "backward")],
    ...                 columns={"module": pd.Categorical(["blocks.0", "blocks.0"])})
    >>> activation_checkpoint(graph, modules="blocks.0").tasks[["name", "work_ns"]].values.tolist()
    [['fwd', 50], ['bwd', 90], ['checkpoint (predicted)', 240000], ['fwd', 50]]
    """
    call, names = _calls(graph, modules)
    host = ~on_device(graph)
    key = _per_step(graph, call)
    forward = host & is_in(graph.tasks["phase"], "forward") & (call >= 0) & ~_uploads(graph)
    backward = host & is_in(graph.tasks["phase"], "backward") & (call >= 0)
    require(forward, graph, "forward task in the modules to checkpoint")
    require(backward, graph, "backward task in the modules to checkpoint")
    anchor = np.full(int(key.max()) + 1, -1, np.int64)
    firsts = _in_order(graph, np.flatnonzero(backward))[::-1]
    anchor[key[firsts]] = firsts
    rows = _in_order(graph, np.flatnonzero(forward & (anchor[key] >= 0)))
    rows = rows[np.argsort(anchor[key[rows]], kind="stable")]
    measured = segment_ns(graph, "checkpoint", partial(activation_checkpoint, modules=modules))
    once = (round(SEGMENT.now()), "prior") if measured is None else (round(measured), "measured")
    changed, again = _host_again(graph, rows, anchor[key[rows]], once)
    changed = _device_again(graph, changed, rows, again, anchor[key[rows]])
    changed = changed if measured is None else mark_measured(changed)
    return add_note(
        change_activations(changed, ActivationChange(calls=_paths(graph, names))),
        f"activation_checkpoint: {names[0]}"
        f"{f' and {len(names) - 1} others' if len(names) > 1 else ''} computed twice per step",
        "activation_checkpoint: the memory that becomes free is not used for a bigger batch",
    )


def blocks(paths: list[str]) -> list[str]:
    """Return the numbered parts of the outermost lists among module *paths*.

    A list is what has numbered parts and never runs itself (``ModuleList``), or a sequence whose
    parts hold modules of their own.

    Examples
    --------
    >>> blocks(["stem", "stem.0", "layers.0", "layers.0.fc", "layers.1", "layers.1.fc"])
    ['layers.0', 'layers.1']
    """
    parts: dict[str, set[str]] = defaultdict(set)
    for path in paths:
        for number in re.finditer(r"\.\d+(?=\.|$)", path):
            parts[path[: number.start()]].add(path[: number.end()])
    ran = set(paths)
    nested = {path.rsplit(".", 1)[0] for path in paths if "." in path}
    numbered = [
        part
        for whole, members in sorted(parts.items())
        if len(members) > 1 and (whole not in ran or members <= nested)
        for part in sorted(members)
    ]
    return [p for p in numbered if not any(p.startswith(f"{outer}.") for outer in numbered)]


def _calls(graph: Graph, modules: str | None) -> tuple[Rows, list[str]]:
    """Return, per task, the number of the checkpointed call it belongs to, or −1; their names."""
    column = graph.tasks["module"]
    if modules is not None:
        return modules_matching(graph, modules)
    if not column.notna().any():
        return np.zeros(len(column), np.int64), ["the whole forward pass"]
    repeated = blocks([str(path) for path in column.cat.categories])
    if not repeated:
        raise TransformError(
            "nothing to change: the network has no repeated blocks; name what to checkpoint, "
            'as in activation_checkpoint(modules="encoder|decoder")'
        )
    return modules_matching(graph, "|".join(f"^{re.escape(block)}" for block in repeated))


def _paths(graph: Graph, names: list[str]) -> tuple[str, ...]:
    """Return the modules of the calls; "", the network, where the recording names none."""
    return tuple(names) if graph.tasks["module"].notna().any() else ("",)


def _uploads(graph: Graph) -> Mask:
    """Return the waits, and the calls that bring data to the device: no module's own work."""
    tasks, call = graph.tasks, call_of(graph)
    uploads = ~is_in(tasks["wait"], "none") | is_in(tasks["kind"], "sync")
    uploads[call[matches(tasks["name"], "HtoD") & (call >= 0)]] = True
    return uploads


def _per_step(graph: Graph, call: Rows) -> Rows:
    """Return a number per call, rank and step."""
    tasks, rank = graph.tasks, graph.lanes["rank"].to_numpy().astype(np.int64)
    step = tasks["step"].to_numpy().astype(np.int64)
    ranks = int(rank.max(initial=0)) + 1
    of_rank = np.maximum(call, 0) * ranks + rank[tasks["lane"].to_numpy()]
    number: Rows = of_rank * (int(step.max(initial=0)) + 1) + step
    return number


def _in_order(graph: Graph, rows: Rows) -> Rows:
    """Return *rows* in host order: recorded start, then row."""
    return rows[np.lexsort((rows, graph.tasks["start_ns"].to_numpy()[rows]))]


def _copied_columns(graph: Graph, rows: Rows) -> dict[str, Any]:
    return {name: graph.tasks[name].iloc[rows].array for name in CARRIED}


def _host_again(
    graph: Graph, rows: Rows, anchors: Rows, once: tuple[int, str]
) -> tuple[Graph, Rows]:
    """Put copies of the host tasks *rows*, and what checkpointing costs, before their anchors."""
    outgoing = chain(graph)[1][rows]
    lags, dst = (graph.edges[c].to_numpy() for c in ("lag_ns", "dst"))
    goes_on = np.append((rows[1:] == dst[outgoing[:-1]]) & (outgoing[:-1] >= 0), [False])
    saved = _saved_tensors(graph, rows, anchors)
    changed, _ = insert(
        graph,
        np.unique(anchors),
        place="before",
        name="checkpoint (predicted)",
        kind="host",
        work_ns=once[0] + np.rint(SAVED_TENSOR.now() * saved).astype(np.int64),
        cost=once[1],
    )
    changed, again = insert(
        changed,
        anchors,
        place="before",
        gap_ns=np.where(goes_on, lags[outgoing], 0),
        kind="host",
        **_copied_columns(graph, rows),
    )
    return _with_kinds(changed, graph, rows, again), again


def _saved_tensors(graph: Graph, rows: Rows, anchors: Rows) -> Rows:
    """Return how many tensors the operators of *rows* keep for backward, per distinct anchor."""
    operators = graph.operators
    distinct, number = np.unique(anchors, return_inverse=True)
    operator = graph.tasks["operator"].to_numpy().astype(np.int64)[rows]
    pairs = np.unique(np.stack([number, operator], 1)[operator >= 0], axis=0)
    kind_of_name = np.array(
        [*(operator_class(str(n)) for n in operators["name"].cat.categories), ""]
    )
    kind = np.append(kind_of_name[operators["name"].cat.codes.to_numpy()], "")
    parent = np.append(operators["parent"].to_numpy(), -1)
    outer = pairs[kind[pairs[:, 1]] != kind[parent[pairs[:, 1]]]]
    kept = np.array([SAVED.get(str(each), 0) for each in kind[outer[:, 1]]], np.int64)
    return np.bincount(outer[:, 0], kept, len(distinct)).astype(np.int64)


def _device_again(graph: Graph, changed: Graph, rows: Rows, again: Rows, anchors: Rows) -> Graph:
    """Repeat what the copied calls launched, before the first device task of their backward."""
    launched = np.flatnonzero(is_in(graph.edges["kind"], "launch"))
    src, dst = (graph.edges[end].to_numpy().astype(np.int64) for end in ("src", "dst"))
    copy, anchor_of = (np.full(len(graph.tasks), -1, np.int64) for _ in range(2))
    copy[rows], anchor_of[rows] = again, anchors
    edges = launched[copy[src[launched]] >= 0]
    places = _first_launched(graph, launched, anchor_of[src[edges]], dst[edges])
    edges, places = edges[places >= 0], places[places >= 0]
    if not len(edges):
        return changed
    start = graph.tasks["start_ns"].to_numpy()[src[edges]]
    order = np.lexsort((dst[edges], src[edges], start, places))
    edges, places = edges[order], places[order]
    columns = _copied_columns(graph, dst[edges])
    changed, kernels = insert(changed, places, place="before", kind="kernel", **columns)
    changed = _with_kinds(changed, graph, dst[edges], kernels)
    lag, shift = (graph.edges[c].to_numpy()[edges] for c in ("lag_ns", "shift"))
    linked = edge_rows(changed.edges, copy[src[edges]], kernels, "launch", lag, shift)
    return replace(changed, edges=linked)


def _first_launched(graph: Graph, launched: Rows, anchors: Rows, tasks: Rows) -> Rows:
    """Return the first device task on the stream of each of *tasks* launched from its anchor on."""
    start, lane = (graph.tasks[c].to_numpy().astype(np.int64) for c in ("start_ns", "lane"))
    src, dst = (graph.edges[end].to_numpy()[launched] for end in ("src", "dst"))
    order = np.lexsort((dst, src, start[src]))
    first = np.full(len(tasks), -1, np.int64)
    for stream in np.unique(lane[tasks]):
        mine = order[lane[dst[order]] == stream]
        here = lane[tasks] == stream
        after = np.searchsorted(start[src[mine]], start[anchors[here]])
        first[here] = np.append(dst[mine], -1)[after]
    return first


def _with_kinds(changed: Graph, graph: Graph, rows: Rows, again: Rows) -> Graph:
    """Give the tasks *again* the kinds of the *rows* that they copy."""
    kinds, tasks = graph.tasks["kind"].iloc[rows], changed.tasks
    for kind in kinds.unique():
        where = np.zeros(len(tasks), bool)
        where[again[(kinds == kind).to_numpy()]] = True
        tasks = tasks.assign(kind=set_label(tasks["kind"], where, str(kind)))
    return replace(changed, tasks=tasks)
