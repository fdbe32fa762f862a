"""Compilation (``torch.compile``): element-wise chains become one kernel, dispatch goes away."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from foretrace.errors import TransformError
from foretrace.graph.model import DEVICE_KINDS
from foretrace.transforms.costs.assumed import Assumed
from foretrace.transforms.costs.kernel_names import classes, kernel_class
from foretrace.transforms.costs.optimizer_traffic import POINTERS, memory_passes
from foretrace.transforms.costs.rules import floor_ns, model_streams, subtract_floor
from foretrace.transforms.edit.columns import Mask, Rows, is_in, matches, set_label
from foretrace.transforms.edit.primitives import scale, scale_lags
from foretrace.transforms.edit.provenance import add_note
from foretrace.transforms.edit.remove import remove
from foretrace.transforms.edit.select import LONGEST_DISPATCH_NS, has_device, on_device, require

if TYPE_CHECKING:
    import numpy.typing as npt

    from foretrace.graph.model import Graph

PHASES = ("forward", "backward")
REDUCING = ("reduce", "norm", "softmax")
FUSABLE = ("pointwise", *REDUCING)
COPIES = "direct_copy_kernel"
"""Casts and copies to another layout: element-wise kernels by another name."""
PASSES = {"norm": 2, "softmax": 2, "reduce": 1, "pointwise": 3, "copy": 2}
"""Passes over memory where a kernel's name does not count its pointers."""

WRAPPER = Assumed(
    "generated code around one launch, ns",
    *(6_000, 3_000, 12_000),
    "an estimate of this project; no published figure was found",
    more_is_longer=True,
)
ENTRY = Assumed(
    "entering compiled forward or backward code (guards, autograd, views), ns",
    *(100_000, 30_000, 300_000),
    "an estimate of this project; no published figure was found",
    more_is_longer=True,
)
FUSED = Assumed(
    "element-wise kernels of compiled code, in what fusing neighbours leaves of them",
    *(1.0, 0.5, 1.25),
    "TorchInductor also fuses across kernels in between, into products, and casts away, and runs "
    "forward kernels again in backward: published steps of one ViT take 1.00 of the uncompiled "
    "ones in 2024, with 1.21 of this rule's element-wise time, and 0.85 in 2025 (NERSC tutorials)",
    more_is_longer=True,
)


def compile(graph: Graph) -> Graph:  # noqa: A001 - what users call it
    """Compile the model: fuse chains of element-wise kernels and drop the framework's dispatch.

    Parameters
    ----------
    graph
        The job, not compiled yet.

    Notes
    -----
    Assumes: one graph without breaks. Element-wise kernels, casts and copies among them, that
    follow one another are one kernel, with at most one reduction or norm in it. What one hands
    to the next is no longer read (forward, where backward needs it) or neither written nor read
    (backward). The host takes a call and 6 us per kernel that is left, and 0.1 ms per pass.
    Products, convolutions, attention and the optimizer stay. On a CPU nothing changes, which is
    no forecast: of three measured models one step became 23 % shorter, and two 11 and 12 %
    longer.
    Unknown: kernels that follow one another without using each other's output, recomputation
    that the compiler chooses, autotuned products, time to compile.
    Source: the fusion rules of TorchInductor; memory traffic; the ViT pair P14 (no other).

    Examples
    --------
    >>> from foretrace.graph.literal import literal
    >>> relu = "vectorized_elementwise_kernel<4, relu, at::detail::Array<char*, 2>>"
    >>> graph = literal([("gemm", "kernel", 0, 80_000, "backward")]
    ...                 + [(relu, "kernel", 0, 100_000, "backward")] * 3)
    >>> compile(graph).tasks[["name", "work_ns"]].values.tolist()
    [['gemm', 80000], ['triton_poi_fused (predicted)', 100000]]
    """
    if not has_device(graph):
        return add_note(
            graph,
            "compile: on a CPU no change is predicted, for what a compiler generates cannot be "
            "foreseen; of three models measured on one thread one became 23 % shorter, two 11 and "
            "12 % longer per step",
        )
    tasks = graph.tasks
    if (is_in(tasks["kind"], "kernel") & matches(tasks["name"], "^triton_")).any():
        raise TransformError("nothing to change: this job runs compiled kernels already")
    rows, begins = _chains(graph)
    text = (
        f"compile: {len(rows) / graph.steps:.0f} element-wise kernels per step become "
        f"{begins.sum() / graph.steps:.0f}"
    )
    return add_note(_less_host(graph, _fuse(graph, rows, begins)), text)


def _chains(graph: Graph) -> tuple[Rows, Mask]:
    """Return the fusable kernels in stream order, and which of them begin a fused kernel."""
    tasks = graph.tasks
    kinds = classes(tasks["name"])
    device = is_in(tasks["kind"], *DEVICE_KINDS) & model_streams(graph, kinds)
    covered = is_in(tasks["kind"], "kernel") & is_in(tasks["phase"], *PHASES)
    can = device & covered & (np.isin(kinds, FUSABLE) | matches(tasks["name"], COPIES))
    require(can, graph, "element-wise or reducing kernel in forward or backward")
    order = np.flatnonzero(device)
    columns = [tasks[c].to_numpy()[order] for c in ("start_ns", "step", "lane")]
    order = order[np.lexsort((order, *columns))]
    where = tasks["lane"].to_numpy(), tasks["step"].to_numpy(), tasks["phase"].cat.codes.to_numpy()
    apart = np.ones(len(order), bool)
    apart[1:] = ~can[order[:-1]]
    for column in where:
        apart[1:] |= column[order[1:]] != column[order[:-1]]
    reduces = np.isin(kinds, REDUCING)[order]
    begins, has_reduction = apart.copy(), False
    for place in np.flatnonzero(can[order]).tolist():
        if apart[place] or (reduces[place] and has_reduction):
            begins[place], has_reduction = True, False
        has_reduction |= bool(reduces[place])
    kept = can[order]
    return order[kept], begins[kept]


def _fuse(graph: Graph, rows: Rows, begins: Mask) -> Graph:
    """Give each chain's first kernel the time of the whole fused kernel; remove the others."""
    tasks, floor = graph.tasks, floor_ns(graph)
    bytes_ns = subtract_floor(tasks["work_ns"].to_numpy()[rows], floor)
    pass_ns = bytes_ns / _passes(graph)[rows]
    handed = np.where(is_in(tasks["phase"], "backward")[rows], 2.0, 1.0)
    saved = np.append(0.0, np.minimum(pass_ns[1:], pass_ns[:-1])) * handed * ~begins
    chain = np.cumsum(begins) - 1
    left = np.bincount(chain, np.maximum(bytes_ns - saved, 0.0)) * FUSED.now()
    is_left = (np.bincount(chain) == 1) & (FUSED.now() == FUSED.value)
    first = rows[begins][~is_left]
    new_ns = np.hypot(left, floor)[~is_left]
    work = tasks["work_ns"].to_numpy().copy()
    work[first] = np.rint(new_ns)
    changed = np.zeros(len(tasks), bool)
    changed[first] = True
    label = set_label(tasks["cost"], changed, "roofline")
    name = set_label(tasks["name"], changed, "triton_poi_fused (predicted)")
    gone = np.zeros(len(tasks), bool)
    gone[rows[~begins]] = True
    return remove(replace(graph, tasks=tasks.assign(work_ns=work, cost=label, name=name)), gone)


def _passes(graph: Graph) -> npt.NDArray[np.float64]:
    """Return how often each kernel passes over its memory."""
    names = graph.tasks["name"].cat
    each = [
        memory_passes(name) if POINTERS.search(name) else PASSES.get(kernel_class(name), 1)
        for name in map(str, names.categories)
    ]
    return np.array([*each, 1], np.float64)[names.codes.to_numpy()]


def _less_host(before: Graph, graph: Graph) -> Graph:
    """Shrink the host's forward and backward to generated code that launches what is left."""
    where, lags = _compiled_parts(graph)
    now_ns, left_ns = (_host_ns(each, *_compiled_parts(each)) for each in (before, graph))
    calls = int((where & is_in(graph.tasks["kind"], "launch")).sum())
    after_ns = calls * (graph.platform.launch_ns + WRAPPER.now()) + 2 * ENTRY.now() * graph.steps
    if after_ns >= left_ns:
        return add_note(graph, "compile: the host has little dispatch to save")
    scaled = scale(graph, where, after_ns / left_ns, cost="prior")
    text = f"compile: the host's forward and backward take {after_ns / now_ns:.0%} of their time"
    return add_note(scale_lags(scaled, lags, after_ns / left_ns), text)


def _compiled_parts(graph: Graph) -> tuple[Mask, Mask]:
    """Return the host tasks of forward and backward, and the edges with the time between them.

    The allocator's calls stay, and what takes longer than any dispatch does.
    """
    tasks, edges = graph.tasks, graph.edges
    stays = is_in(graph.lanes["role"], "loader")[tasks["lane"].to_numpy()]
    stays |= matches(tasks["name"], r"^(cuda|hip)(Free|Malloc)")
    inside = ~on_device(graph) & is_in(tasks["phase"], *PHASES) & ~stays
    src, dst = (edges[end].to_numpy() for end in ("src", "dst"))
    between = is_in(edges["kind"], "thread", "fork", "join") & inside[src] & inside[dst]
    work_ns, lag_ns = tasks["work_ns"].to_numpy(), edges["lag_ns"].to_numpy()
    return inside & (work_ns <= LONGEST_DISPATCH_NS), between & (lag_ns <= LONGEST_DISPATCH_NS)


def _host_ns(graph: Graph, where: Mask, lags: Mask) -> float:
    """Return the host time of forward and backward, gaps on a thread included."""
    gaps = lags & is_in(graph.edges["kind"], "thread")
    spent = graph.tasks["work_ns"].to_numpy()[where].sum()
    return float(spent + graph.edges["lag_ns"].to_numpy()[gaps].sum())
