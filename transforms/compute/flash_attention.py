"""Fused attention: chains of product, softmax and product become one kernel.

In backward a chain has two products on either side of the softmax's gradient. A softmax is a kernel
of that name, or an exponential and a sum of a model that writes its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foretrace.errors import TransformError
from foretrace.transforms.costs.devices import Hardware, attention_share, floor_us, hardware
from foretrace.transforms.costs.kernels import Kernels, attention_kinds
from foretrace.transforms.costs.roofline import attention_rate, bandwidth, matrix_rate
from foretrace.transforms.edit.columns import Mask, Rows, is_in, matches, pad
from foretrace.transforms.edit.parameters import choice
from foretrace.transforms.edit.primitives import insert_kernels, scale
from foretrace.transforms.edit.provenance import add_note
from foretrace.transforms.edit.remove import remove
from foretrace.transforms.edit.select import call_of, has_device

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from foretrace.graph.model import Graph

KINDS = ("flash2", "flash3", "flash1", "mem_efficient")
HALF_TYPES = ("fp16", "bf16", "fp8")
HEAD_DIMENSION = 64
"""Of products whose shapes are unknown. It also is what such a product does per byte of 16-bit
scores that it writes or reads, which bounds it on every device of the table with tensor cores."""

RECOMPUTED = 5 / 4
"""The fused backward pass computes the scores again: five products in place of four."""

LOSS_OR_ROUTER = r"(?i)log_?softmax|nll_?loss|cross_?entropy|topk|sort|routing"
SPARE = ("pointwise", "copy", "softmax", "reduce", "layout", "quantize", "other", "embedding")
"""Classes that may stand between the products of a chain."""
MOST_BETWEEN = 24
"""A longer run between two products is no attention (own softmax gradients take 18 kernels)."""


def flash_attention(graph: Graph, *, kind: str = "flash2", causal: bool = False) -> Graph:
    """Compute attention in one fused kernel: in place of its chain, or of a slower fused one.

    Parameters
    ----------
    graph
        The job on a GPU, in 16 bits ("mem_efficient" runs in fp32 as well).
    kind
        The library: "flash2", "flash3" (Hopper), "flash1" or "mem_efficient".
    causal
        The mask is causal, so that a fused kernel skips half of the scores a chain computes.

    Notes
    -----
    Assumes: a chain is two products with a softmax between them, and in backward two products on
    either side of its gradient. Its products' work runs at the share of the peak that the fused
    library reaches, five products in place of four in backward; the passes over the scores
    vanish, with their launches and the host time between. Fused kernels of a slower library
    change by the ratio of the two shares.
    Unknown: head dimensions that the library does not take, dropout and masks it does not fuse.
    Source: attention and matrix shares in devices.toml; FlashAttention-2 (2023).

    Examples
    --------
    >>> from dataclasses import replace
    >>> from foretrace.tracer.trace import Device
    >>> from foretrace.graph.literal import literal
    >>> names = ["bf16_s16816gemm", "softmax_warp_forward<bf16>", "bf16_s16816gemm"]
    >>> graph = literal([(name, "kernel", 0, 500_000, "forward") for name in names])
    >>> meta = replace(graph.meta, devices=(Device(0, "NVIDIA A100-SXM4-80GB"),))
    >>> flash_attention(replace(graph, meta=meta)).tasks.work_ns.tolist()
    [690882]
    """
    choice("kind", kind, KINDS)
    device = hardware(graph) if has_device(graph) else None
    if device is None:
        raise TransformError("flash_attention needs a job recorded on a GPU of the table")
    if attention_share(kind, device) is None:
        raise TransformError(f"kind={kind!r} does not run on {device.name}; try 'mem_efficient'")
    kernels = Kernels(graph)
    chains, fused = find_chains(kernels), _slower_kinds(kernels, kind, device)
    if not chains and not fused.any():
        raise TransformError(
            "nothing to change: no chain of product, softmax and product, and no fused attention "
            f"slower than {kind} in this graph"
        )
    touched = fused.copy()
    touched[[chain.matmuls[0] for chain in chains]] = True
    if kind != "mem_efficient" and not np.isin(kernels.precisions[touched], HALF_TYPES).all():
        raise TransformError(
            f"kind={kind!r} takes 16-bit inputs and this job's attention runs in fp32; "
            "put amp before it, or use kind='mem_efficient'"
        )
    graph = _scale_slower(graph, kernels, fused, device, kind)
    graph = _fuse_chains(graph, _Costs(kernels, device, kind, causal=causal), chains)
    text = f"flash_attention: {len(chains)} chains and {int(fused.sum())} fused kernels run as"
    return add_note(
        graph, f"{text} {kind}, {'with' if causal else 'without'} a causal mask to skip"
    )


@dataclass(frozen=True)
class AttentionChain:
    """Rows of one attention in one pass, in stream order: its matmuls, and all of its kernels."""

    matmuls: tuple[int, ...]
    kernels: tuple[int, ...]
    is_backward: bool


@dataclass(frozen=True)
class _Costs:
    """What one fused kernel takes in place of a chain."""

    kernels: Kernels
    device: Hardware
    kind: str
    causal: bool

    def fused_ns(self, chain: AttentionChain) -> float:
        """Return the floor of an attention kernel, plus the matmuls' work at its rate."""
        rows = np.array(chain.matmuls)
        precision = str(self.kernels.precisions[rows[0]])
        rate = attention_rate(self.device, self.kind, precision)
        more = RECOMPUTED if chain.is_backward else 1.0
        flops = self._flops(rows, precision) * more / (2 if self.causal else 1)
        return 1e3 * floor_us("attention", self.device) + flops / rate

    def _flops(self, rows: Rows, precision: str) -> float:
        flops = self.kernels.work[0][rows]
        if np.isfinite(flops).all():
            return float(flops.sum())
        work = self.kernels.graph.tasks["work_ns"].to_numpy()[rows]
        peak = float(matrix_rate(self.device, np.array([precision]), np.array([False]))[0])
        bound = work - 1e3 * floor_us("gemm", self.device)
        return float(np.maximum(bound, 0).sum()) * min(
            peak, HEAD_DIMENSION * bandwidth(self.device)
        )


def _slower_kinds(kernels: Kernels, kind: str, device: Hardware) -> Mask:
    """Return the fused attention kernels of a library that reaches less than *kind*."""
    kinds = attention_kinds(kernels.graph)
    wanted = attention_share(kind, device) or 0.0
    slower = [k for k in np.unique(kinds).tolist() if (attention_share(k, device) or 0.0) < wanted]
    return kernels.where & (kernels.classes == "attention") & np.isin(kinds, slower)


def _scale_slower(
    graph: Graph, kernels: Kernels, fused: Mask, device: Hardware, kind: str
) -> Graph:
    """Change fused kernels of other libraries by the ratio of the shares."""
    factor = np.ones(len(graph.tasks))
    kinds = attention_kinds(graph)
    for row in np.flatnonzero(fused):
        precision = str(kernels.precisions[row])
        old = attention_rate(device, str(kinds[row]), precision)
        factor[row] = old / attention_rate(device, kind, precision)
    return scale(graph, fused, factor, cost="table")


def _fuse_chains(graph: Graph, costs: _Costs, chains: list[AttentionChain]) -> Graph:
    """Put one kernel where each chain began, and take the chain out with its host time."""
    if not chains:
        return graph
    first = np.array([chain.matmuls[0] for chain in chains])
    gone = np.zeros(len(graph.tasks), bool)
    gone[np.concatenate([chain.kernels for chain in chains])] = True
    gone |= _host_between(graph, chains)
    graph, _ = insert_kernels(
        graph,
        first,
        place="before",
        name=f"{costs.kind} attention (predicted)",
        work_ns=np.rint([costs.fused_ns(chain) for chain in chains]).astype(np.int64),
        cost="table",
    )
    return remove(graph, pad(gone, len(graph.tasks)), gaps="drop")


def _host_between(graph: Graph, chains: list[AttentionChain]) -> Mask:
    """Return the host tasks between the first and the last launch of each chain."""
    tasks = graph.tasks
    call = call_of(graph)
    lane, start = (tasks[c].to_numpy().astype(np.int64) for c in ("lane", "start_ns"))
    host = np.flatnonzero(is_in(tasks["kind"], "host"))
    host = host[np.lexsort((start[host], lane[host]))]
    keys = np.rec.fromarrays([lane[host], start[host]])
    between = np.zeros(len(tasks), bool)
    for chain in chains:
        calls = call[np.array(chain.kernels)]
        calls = calls[calls >= 0]
        calls = calls[lane[calls] == lane[calls[0]]] if len(calls) else calls
        if len(calls) > 1:
            ends = np.rec.fromarrays([lane[calls], start[calls]])
            ends.sort()
            low, high = np.searchsorted(keys, ends[[0, -1]])
            between[host[low:high]] = True
    return between


def find_chains(kernels: Kernels) -> list[AttentionChain]:
    """Return every chain of *kernels*, forward and backward, in order of their first rows."""
    chains = [chain for rows in _by_stream(kernels) for chain in _on_stream(kernels, rows)]
    return sorted(chains, key=lambda chain: chain.matmuls[0])


def _by_stream(kernels: Kernels) -> Iterator[Rows]:
    tasks = kernels.graph.tasks
    rows = np.flatnonzero(kernels.where)
    lane, start = (tasks[c].to_numpy()[rows] for c in ("lane", "start_ns"))
    rows = rows[np.lexsort((rows, start, lane))]
    lane = tasks["lane"].to_numpy()[rows]
    yield from np.split(rows, np.flatnonzero(np.diff(lane)) + 1)


def _on_stream(kernels: Kernels, rows: Rows) -> Iterator[AttentionChain]:
    """Look at every run of kernels between two matmuls that follow one another."""
    tasks, signs = kernels.graph.tasks, _signs(kernels)
    phase, step = tasks["phase"].array, tasks["step"].to_numpy()
    where = phase.codes + len(phase.categories) * step.astype(np.int64)
    backward = is_in(tasks["phase"], "backward")
    matmuls = np.flatnonzero(kernels.classes[rows] == "gemm")
    for at in np.flatnonzero(_may_be_attention(kernels.classes[rows], matmuls)).tolist():
        between = rows[matmuls[at] + 1 : matmuls[at + 1]]
        is_backward = bool(backward[rows[matmuls[at]]])
        around = 1 if is_backward else 0
        if at < around or not signs.found(between, is_backward=is_backward):
            continue
        inside = rows[matmuls[at - around : at + 2 + around]]
        if len(inside) == 2 + 2 * around and len(np.unique(where[inside])) == 1:
            every = tuple(sorted([*inside.tolist(), *between.tolist()]))
            yield AttentionChain(tuple(inside.tolist()), every, is_backward)


def _may_be_attention(classes: npt.NDArray[np.str_], matmuls: Rows) -> Mask:
    """Tell which two neighbours of *matmuls* have a few kernels between them, all to be spared."""
    needed = np.append(0, np.cumsum(~np.isin(classes, SPARE)))
    first, last = matmuls[:-1] + 1, matmuls[1:]
    few = (last > first) & (last - first <= MOST_BETWEEN)
    may_be: Mask = few & (needed[last] == needed[first])
    return may_be


@dataclass(frozen=True)
class _Signs:
    """Which kernels tell a softmax, its gradient, or something that looks like one."""

    softmax: Mask
    own: tuple[Mask, ...]
    own_gradient: tuple[Mask, ...]
    other: Mask

    def found(self, between: Rows, *, is_backward: bool) -> bool:
        """Tell whether the kernels *between* two products are those of attention."""
        own = self.own_gradient if is_backward else self.own
        is_own = all(sign[between].any() for sign in own)
        return (self.softmax[between].any() or is_own) and not self.other[between].any()


def _signs(kernels: Kernels) -> _Signs:
    names = kernels.graph.tasks["name"]
    summed = matches(names, r"sum_functor|reduce.*sum")
    return _Signs(
        softmax=matches(names, r"(?i)softmax"),
        own=(matches(names, r"exp_kernel|exp_cuda"), summed),
        own_gradient=(matches(names, "DivFunctor|div_true"), matches(names, "neg_kernel"), summed),
        other=matches(names, LOSS_OR_ROUTER),
    )
