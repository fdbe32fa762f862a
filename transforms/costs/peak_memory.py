"""How much device memory a job needs at its peak, before and after a what-if.

In: a graph. Out: bytes by part, with their source. `memory_curve.py` says who holds memory when.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foretrace.graph.state import ActivationChange, MemoryChange
from foretrace.transforms.costs.devices import hardware
from foretrace.transforms.costs.memory_curve import BY_SAMPLES, PART, RECORDED, memory_curve
from foretrace.transforms.edit.select import has_device

if TYPE_CHECKING:
    from foretrace.graph.model import Graph
    from foretrace.transforms.costs.activations import Activations
    from foretrace.transforms.costs.memory_curve import Curve

GB = 1e9


@dataclass(frozen=True)
class Memory:
    """Device memory at the peak, in bytes.

    ``parameters`` include buffers, ``temporary`` what a phase takes and gives back. ``phase`` is
    that of the peak, ``source`` as in `Curve`; ``other`` was held all along and is nothing known.
    """

    parameters: float
    gradients: float
    optimizer_state: float
    activations: float
    source: str
    inputs: float = 0.0
    temporary: float = 0.0
    other: float = 0.0
    phase: str = ""

    @property
    def bytes(self) -> float:
        """All of it. The allocator reserves more; what it did not hand out is not in it."""
        return sum(getattr(self, part) for part in PARTS)


PARTS = (
    *("parameters", "gradients", "optimizer_state", "activations"),
    *("inputs", "temporary", "other"),
)
"""In the order of reports."""


def peak_memory(graph: Graph) -> Memory | None:
    """Return what *graph* needs at its peak; None where nothing tells.

    What-ifs that change what is kept say so by `keep`, of anything else by `change_memory`.

    Examples
    --------
    >>> from foretrace.graph.literal import literal
    >>> mm = {"name": ["aten::mm"], "parent": [-1], "shapes": ["[[4,16],[16,8]]"]}
    >>> graph = literal(
    ...     [("sgemm", "kernel", 0, 9, "forward")], columns={"operator": [0]}, operators=mm
    ... )
    >>> peak_memory(graph).activations
    256.0
    >>> peak_memory(keep(graph, 0.5)).activations
    128.0
    """
    curve = memory_curve(graph)
    return None if curve is None else peak_of(curve.after(graph.state))


def peak_of(curve: Curve) -> Memory:
    """Return what is held at the moment at which most is."""
    at = int(np.argmax(curve.total))
    held = dict(zip(PART, curve.held[at].tolist(), strict=True))
    held["temporary"] += held.pop("update")
    return Memory(**held, source=curve.source, phase=curve.phases[at])


def keep(graph: Graph, factor: float, *kinds: str) -> Graph:
    """Return *graph* keeping *factor* times the bytes between forward and backward.

    Of the activations of *kinds* (`activations.KEEPING`), or of all.
    """
    return change_activations(graph, ActivationChange(kinds, factor))


def change_activations(graph: Graph, change: ActivationChange) -> Graph:
    """Return *graph* with one more *change* to what forward keeps."""
    return graph.with_state(kept_activations=(*graph.state.kept_activations, change))


def grow_memory(graph: Graph, ratio: float) -> Graph:
    """Return *graph* with the memory of *ratio* times the samples in a step."""
    return change_memory(keep(graph, ratio), ratio, *(p for p in BY_SAMPLES if p != "activations"))


def change_memory(graph: Graph, factor: float, *parts: str, added: float = 0.0) -> Graph:
    """Return *graph* with *factor* times the memory of *parts*, and *added* bytes in each."""
    changes = [MemoryChange(part, factor, added) for part in parts]
    return graph.with_state(memory_changes=(*graph.state.memory_changes, *changes))


def capacity_bytes(graph: Graph) -> float | None:
    """Return the memory of the device that *graph* runs on, or of the CPU's machine."""
    if not has_device(graph):
        size = (graph.meta.machine or {}).get("memory_bytes")
        return float(size) if size else None
    used = set(graph.lanes["device"].to_numpy().tolist())
    ours = [d for d in graph.meta.devices if d.index in used] or list(graph.meta.devices)
    if ours and ours[0].memory_bytes:
        return float(ours[0].memory_bytes)
    device = hardware(graph)
    size = None if device is None else device.figures.get("memory_gb")
    return None if size is None else size * GB


def memory_warnings(
    before: Graph, after: Graph, kept: Activations | None = None
) -> tuple[str, ...]:
    """Say that a changed job does not fit into the device's memory, if so.

    *kept* are the activations of *before*, where they are known.

    The recorded job did fit: an estimate that says otherwise is cut to what there was. A what-if
    that keeps no more than before on a device that is no smaller is not looked at.
    """
    there, room = capacity_bytes(before), capacity_bytes(after)
    grows = any(each.factor > 1 for each in after.state.kept_activations)
    grows |= any(c.factor > 1 or c.added > 0 for c in after.state.memory_changes)
    if room is None or (not grows and (there is None or room >= there)):
        return ()
    curve = memory_curve(before, kept)
    if curve is None:
        return ()
    old, new = (peak_of(curve.after(graph.state)) for graph in (before, after))
    needs = new.bytes
    if curve.source != RECORDED:
        needs -= max(0.0, old.bytes - (there or np.inf))
    if needs <= room:
        return ()
    text = (
        f"does not fit: needs about {needs / GB:,.1f} GB of the {room / GB:,.1f} GB of memory "
        f"(source: {new.source})"
    )
    return (text,)
