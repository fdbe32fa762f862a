"""Activations parked in host memory: offloaded during forward, fetched back during backward."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from foretrace.errors import TransformError
from foretrace.graph.state import ActivationChange
from foretrace.transforms.costs.activations import Activations, activations
from foretrace.transforms.costs.peak_memory import change_activations
from foretrace.transforms.edit.parameters import choice, positive, whole
from foretrace.transforms.edit.primitives import whole_ns
from foretrace.transforms.edit.provenance import add_note
from foretrace.transforms.edit.select import call_of, has_device, task_before
from foretrace.transforms.edit.side_stream import add_stream, add_waits, run_aside

if TYPE_CHECKING:
    import numpy.typing as npt

    from foretrace.graph.model import Graph
    from foretrace.transforms.edit.columns import Mask, Rows

POLICIES = ("all", "conv")
COPY_NS = 1_500
"""Device time of a copy of a few bytes (all public traces: 1 to 2 us)."""


def vdnn(graph: Graph, *, policy: str = "all", pcie_gbps: float = 12.0, prefetch: int = 1) -> Graph:
    """Keep activations in host memory between forward and backward, as vDNN does.

    Parameters
    ----------
    graph
        The job.
    policy
        "all", or "conv": only the inputs of convolutions, whose kernels are long enough to hide
        the copies.
    pcie_gbps
        Bandwidth of a pinned copy in one direction: 12 for PCIe 3.0 x16, 24 for 4.0, 50 for 5.0.
    prefetch
        How many layers ahead a tensor is fetched, and how many layers an offload may last.

    Notes
    -----
    Assumes: the input of a layer is copied out while the layer runs; the layer *prefetch* later
    waits for that copy, whose memory it needs. A copy back starts when the layer *prefetch* before
    it in backward starts, and its own layer waits for it. The last layers keep theirs. Copies
    run on two streams of their own, and their calls cost the host a launch each.
    Unknown: kernels slowed by the copies' memory traffic; allocation and pinning.
    Source: vDNN (MICRO 2016); sizes from operator shapes, else from times of the kernel before.

    Examples
    --------
    >>> from foretrace.graph.literal import literal
    >>> phases = ["forward", "forward", "backward", "backward"]
    >>> graph = literal(
    ...     [("launch", "launch", 0, 5, phase) for phase in phases]
    ...     + [("scudnn", "kernel", 1, 90_000, phase) for phase in phases],
    ...     [(i, 4 + i, "launch") for i in range(4)],
    ...     columns={"operator": [-1] * 4 + [0, 1, -1, -1]},
    ...     operators={"name": ["aten::conv2d"] * 2, "parent": [-1] * 2,
    ...                "shapes": ["[[64,10,10,10]]"] * 2},
    ... )
    >>> new = vdnn(graph, policy="conv")
    >>> new.tasks[new.tasks.kind == "memcpy"][["name", "work_ns"]].values.tolist()
    [['Memcpy DtoH (Device -> Pinned)', 22833], ['Memcpy HtoD (Pinned -> Device)', 22833]]
    """
    choice("policy", policy, POLICIES)
    positive("pcie_gbps", pcie_gbps)
    whole("prefetch", prefetch, 1)
    kept = _choose_tensors(graph, policy)
    order = np.lexsort((_starts(graph, kept.forward), _steps(graph, kept.forward)))
    kept = kept.where(order)
    away, turn = _plan_offload(graph, kept, prefetch)
    if not away.any():
        raise TransformError(
            f"nothing to change: no layer but the last, which keeps its input (prefetch={prefetch})"
        )
    graph = _offload(graph, kept, away, pcie_gbps, prefetch)
    graph = _fetch(graph, kept, away, turn, pcie_gbps)
    size = kept.size[away].sum() / graph.steps
    kinds = () if policy == "all" else ("conv",)
    origin = "" if kept.from_shapes[away].all() else ", estimated from kernel times"
    return add_note(
        change_activations(graph, ActivationChange(kinds, ahead=prefetch)),
        f"vdnn: {size / 1e9:.3g} GB per step go to host memory and back at {pcie_gbps:g} GB/s"
        f"{origin}",
    )


def _choose_tensors(graph: Graph, policy: str) -> Activations:
    """Return the tensors to be parked: those of known size that a launched kernel needs later."""
    if not has_device(graph):
        raise TransformError("vdnn needs a device whose memory is short; this is a CPU job")
    kept = activations(graph)
    call = call_of(graph)
    usable = (kept.backward >= 0) & (call[kept.forward] >= 0) & (call[kept.backward] >= 0)
    if policy == "conv":
        usable &= kept.kind == "conv"
    if not usable.any():
        raise TransformError(
            "nothing to change: no activation that lives from forward to backward in this graph"
        )
    if not (usable & (kept.size > 0)).any():
        raise TransformError(
            "vdnn cannot tell how large the activations are: this trace has no operator shapes "
            "and its device is not in the table; record with record_shapes=True"
        )
    return kept.where(usable & (kept.size > 0))


def _starts(graph: Graph, rows: Rows) -> Rows:
    starts: Rows = graph.tasks["start_ns"].to_numpy()[rows]
    return starts


def _steps(graph: Graph, rows: Rows) -> Rows:
    steps: Rows = graph.tasks["step"].to_numpy()[rows].astype(np.int64)
    return steps


def _plan_offload(graph: Graph, kept: Activations, prefetch: int) -> tuple[Mask, Rows]:
    """Tell which tensors leave, and per tensor the backward task that triggers its return.

    In the order in which backward needs them, a tensor comes back when the one *prefetch* before
    it is needed; the first ones have no such and stay.
    """
    turn = np.full(len(kept), -1, np.int64)
    step = _steps(graph, kept.forward)
    for one in np.unique(step).tolist():
        mine = np.flatnonzero(step == one)
        need = mine[np.lexsort((-mine, _starts(graph, kept.backward[mine])))]
        turn[need[prefetch:]] = kept.backward[need[:-prefetch]]
    away = (turn >= 0) & (_starts(graph, turn) < _starts(graph, kept.backward))
    return away, turn


def _offload(graph: Graph, kept: Activations, away: Mask, pcie_gbps: float, prefetch: int) -> Graph:
    """Copy each tensor out beside the layer that reads it; the layer *prefetch* later waits."""
    rows = np.flatnonzero(away)
    readers = kept.forward[rows]
    writer, call = kept.writer[rows], call_of(graph)[readers]
    ready = np.where(writer >= 0, writer, readers)
    graph, copies = _copies(graph, readers, call, kept.size[rows] / pcie_gbps, "DtoH", kept, rows)
    graph = add_waits(graph, ready, copies)
    later = np.minimum(rows + prefetch, len(kept) - 1)
    step = _steps(graph, kept.forward)
    waits = np.where((later > rows) & (step[later] == step[rows]), kept.forward[later], -1)
    return add_waits(graph, copies, waits)


def _fetch(graph: Graph, kept: Activations, away: Mask, turn: Rows, pcie_gbps: float) -> Graph:
    """Copy each tensor back when the layer that triggers it starts; its own layer waits."""
    rows = np.flatnonzero(away)
    rows = rows[np.lexsort((-rows, _starts(graph, turn[rows])))]
    starts, call = task_before(graph)[turn[rows]], call_of(graph)[turn[rows]]
    graph, copies = _copies(
        graph, turn[rows], call, kept.size[rows] / pcie_gbps, "HtoD", kept, rows
    )
    graph = add_waits(graph, starts, copies)
    return add_waits(graph, copies, kept.backward[rows])


def _copies(
    graph: Graph,
    like: Rows,
    calls: Rows,
    times: npt.NDArray[np.float64],
    direction: str,
    kept: Activations,
    rows: Rows,
) -> tuple[Graph, Rows]:
    ends = "Device -> Pinned" if direction == "DtoH" else "Pinned -> Device"
    graph, lane = add_stream(graph, int(graph.tasks["lane"].iat[like[0]]), "copy")
    return run_aside(
        graph,
        lane,
        calls,
        like,
        call="cudaMemcpyAsync",
        name=f"Memcpy {direction} ({ends})",
        kind="memcpy",
        work_ns=COPY_NS + whole_ns(times),
        bytes=kept.size[rows],
        cost="roofline" if kept.from_shapes[rows].all() else "prior",
    )
