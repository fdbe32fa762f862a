"""Activations kept encoded between forward and backward: fewer bytes, more kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from foretrace.errors import TransformError
from foretrace.graph.state import ActivationChange
from foretrace.transforms.costs.activations import Activations, activations
from foretrace.transforms.costs.devices import hardware
from foretrace.transforms.costs.operators import RELU
from foretrace.transforms.costs.peak_memory import change_activations
from foretrace.transforms.costs.rules import floor_ns, streaming_ns
from foretrace.transforms.edit.columns import Mask, matches
from foretrace.transforms.edit.parameters import positive, whole
from foretrace.transforms.edit.primitives import insert_kernels
from foretrace.transforms.edit.provenance import add_note
from foretrace.transforms.edit.select import has_device, require, within_operator

if TYPE_CHECKING:
    import numpy.typing as npt

    from foretrace.graph.model import Graph
    from foretrace.transforms.edit.columns import Rows

ONE_BIT = 1 / 32
"""Of an fp32 value whose sign is all that the backward pass of ReLU and pooling needs."""
INDEX_BITS = 8
"""Column index of a non-zero value: sparse storage by rows of 256."""
FULL_BITS = 32


def gist(graph: Graph, *, nonzero: float = 0.4, lossy_bits: int | None = None) -> Graph:
    """Encode what forward keeps for backward, and decode it before it is needed, as Gist does.

    Parameters
    ----------
    graph
        The job, in fp32.
    nonzero
        Share of values that a ReLU leaves above 0.
    lossy_bits
        Also keep every value in so many bits (16, 10 or 8); by default in full.

    Notes
    -----
    Assumes: a pooling layer keeps 1 bit per value and needs no decoding; the input of a
    convolution or product behind a ReLU is kept sparse, values with 8-bit indices; one encoding
    kernel after the last reader in forward, one decoding kernel before the first in backward,
    each moving its bytes at memory bandwidth, with a launch of its own.
    Unknown: the true sparsity, and how far a conversion to sparse storage is from the bandwidth.
    Source: Gist (ISCA 2018); sizes from operator shapes, else from times of the kernel before.

    Examples
    --------
    >>> from foretrace.graph.literal import literal
    >>> names = ["relu", "scudnn", "scudnn_dgrad"]
    >>> phases = ["forward", "forward", "backward"]
    >>> graph = literal(
    ...     [(name, "kernel", 0, 50_000, phase) for name, phase in zip(names, phases)],
    ...     columns={"operator": [-1, 0, -1]},
    ...     operators={"name": ["aten::conv2d"], "parent": [-1], "shapes": ["[[64,3,99,99]]"]},
    ... )
    >>> gist(graph).tasks[["name", "cost"]].values.tolist()[3:]
    [['gist encode (predicted)', 'prior'], ['gist decode (predicted)', 'prior']]
    """
    positive("nonzero", nonzero)
    if nonzero > 1:
        raise TransformError(f"nonzero={nonzero!r} is out of range; give a share of at most 1")
    bits = FULL_BITS if lossy_bits is None else whole("lossy_bits", lossy_bits, 1)
    if not has_device(graph):
        raise TransformError("gist needs a device whose memory is short; this is a CPU job")
    kept = activations(graph)
    kept = kept.where((kept.backward >= 0) & (kept.size > 0))
    behind_relu = _behind_relu(graph, kept)
    sparse = min(1.0, nonzero * (bits + INDEX_BITS) / FULL_BITS)
    share = np.where(behind_relu, sparse, min(1.0, bits / FULL_BITS))
    share = np.where(kept.kind == "pool", ONE_BIT, share)
    where = require(share < 1, graph, "activation of known size that an encoding makes smaller")
    chosen, left = kept.where(where), share[where]
    decoded = chosen.kind != "pool"
    changed = _insert_codec(graph, chosen.forward, "after", "encode", chosen.size * (1 + left))
    changed = _insert_codec(
        changed,
        chosen.backward[decoded],
        "before",
        "decode",
        (chosen.size * (1 + left))[decoded],
    )
    for kind in np.unique(kept.kind).tolist():
        mine = kept.kind == kind
        total = float((kept.size * share)[mine].sum() / kept.size[mine].sum())
        change = ActivationChange((kind,), total, encoded=kind != "pool")
        changed = change_activations(changed, change)
    total = float((kept.size * share).sum() / kept.size.sum())
    return add_note(
        changed,
        f"gist: {len(chosen)} activations take {total:.0%} of {kept.size.sum() / 1e9:.3g} GB "
        f"in {graph.steps} steps",
    )


def _behind_relu(graph: Graph, kept: Activations) -> Mask:
    """Return the inputs of convolutions and products that a ReLU wrote."""
    relu = matches(graph.tasks["name"], RELU) | within_operator(graph, RELU)
    wrote: Mask = (kept.writer >= 0) & relu[kept.writer]
    return wrote & np.isin(kept.kind, ["conv", "gemm"])


def _insert_codec(
    graph: Graph, anchors: Rows, place: str, what: str, moved: npt.NDArray[np.float64]
) -> Graph:
    """Insert one kernel beside each anchor that moves so many bytes."""
    if not len(anchors):
        return graph
    device, floor = hardware(graph), floor_ns(graph)
    times = [streaming_ns(size, device, floor) for size in moved.tolist()]
    roofline_ns = [time for time in times if time is not None]
    work = roofline_ns if len(roofline_ns) == len(times) else [floor] * len(times)
    graph, _ = insert_kernels(
        graph,
        anchors,
        place=place,
        name=f"gist {what} (predicted)",
        work_ns=np.rint(work).astype(np.int64),
        bytes=moved,
        cost="roofline" if roofline_ns else "prior",
    )
    return graph
