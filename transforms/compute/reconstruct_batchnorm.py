"""Batch normalisation split and fused into its neighbours: less data moved, no separate ReLU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from foretrace.errors import TransformError
from foretrace.transforms.costs.kernel_names import classes
from foretrace.transforms.costs.operators import RELU
from foretrace.transforms.edit.columns import Mask, is_in, matches
from foretrace.transforms.edit.parameters import positive
from foretrace.transforms.edit.primitives import scale
from foretrace.transforms.edit.provenance import add_note
from foretrace.transforms.edit.remove import remove
from foretrace.transforms.edit.select import require, task_before, tasks_inside, within_operator

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

ALLOCATOR = r"(cuda|hip)(Malloc|Free)"
"""The allocator's calls come at some other operator when this one is gone."""
BATCH_NORM = r"(?i)batch_?norm|(^|[\W_])bn_"


def reconstruct_batchnorm(graph: Graph, *, traffic: float = 0.5) -> Graph:
    """Split each batch normalisation and fuse its halves, and the ReLU behind, into convolutions.

    Parameters
    ----------
    graph
        The job, on a device.
    traffic
        Share of the data movement of batch normalisations that is left.

    Notes
    -----
    Assumes: batch normalisations are memory-bound, so their kernels take *traffic* of their time.
    A ReLU directly behind one in forward, and directly before one in backward, goes away with
    its launch and its operator. A ReLU behind a residual addition stays.
    Unknown: the fused convolutions' own slow-down, new copies and allocations. Daydream predicted
    12.7 % for DenseNet-121 where about 7 % were measured: take this for an upper bound.
    Source: Daydream (ATC 2020); Jung et al., Restructuring Batch Normalization (2018).

    Examples
    --------
    >>> from foretrace.graph.literal import literal
    >>> graph = literal(
    ...     [(name, "kernel", 0, 80, "forward") for name in ("bn_fw_tr", "relu", "scudnn", "relu")]
    ... )
    >>> reconstruct_batchnorm(graph).tasks[["name", "work_ns"]].values.tolist()
    [['bn_fw_tr', 40], ['scudnn', 80], ['relu', 80]]
    """
    positive("traffic", traffic)
    if traffic > 1:
        raise TransformError(f"traffic={traffic!r} is out of range; give a share of at most 1")
    kernels = is_in(graph.tasks["kind"], "kernel")
    norms = kernels & (classes(graph.tasks["name"]) == "norm")
    norms &= matches(graph.tasks["name"], BATCH_NORM) | within_operator(graph, BATCH_NORM)
    require(norms, graph, "batch normalisation kernel")
    fused = _fused_activations(graph, kernels, norms)
    changed = scale(graph, norms, traffic, cost="prior")
    changed = remove(changed, fused | _host_of(graph, fused))
    return add_note(
        changed,
        f"reconstruct_batchnorm: {int(norms.sum())} kernels move {traffic:.0%} of their data, "
        f"{int(fused.sum())} ReLU kernels are gone; the method overpredicts (12.7 % for 7 %)",
    )


def _fused_activations(graph: Graph, kernels: Mask, norms: Mask) -> Mask:
    """Return the ReLU kernels next to a batch norm: behind it, or in backward before it."""
    relu = kernels & ~norms
    relu &= matches(graph.tasks["name"], RELU) | within_operator(graph, RELU)
    before = task_before(graph)
    behind = np.flatnonzero(relu & (before >= 0) & norms[before])
    followers = np.flatnonzero(norms & (before >= 0) & is_in(graph.tasks["phase"], "backward"))
    ahead = before[followers]
    fused = np.zeros(len(graph.tasks), bool)
    fused[behind[~is_in(graph.tasks["phase"], "backward")[behind]]] = True
    fused[ahead[relu[ahead]]] = True
    return fused


def _host_of(graph: Graph, removed: Mask) -> Mask:
    """Return the host tasks of the ReLU operators all around and inside those of *removed*."""
    if not len(graph.operators):
        return np.zeros(len(graph.tasks), bool)
    operator = graph.tasks["operator"].to_numpy().astype(np.int64)
    parent = graph.operators["parent"].to_numpy().astype(np.int64)
    relu = matches(graph.operators["name"], RELU)
    gone = np.zeros(len(parent), bool)
    rows = np.unique(operator[removed & (operator >= 0)])
    while len(rows):
        gone[rows] = True
        rows = np.unique(parent[rows])
        rows = rows[(rows >= 0) & relu[rows]]
    own = is_in(graph.tasks["kind"], "host") & ~matches(graph.tasks["name"], ALLOCATOR)
    return own & tasks_inside(graph, gone)
