"""How much device memory a job needs at its peak, before and after a what-if.

In: a graph. Out: bytes with their source. Activations come from `activations.py`; parameters
from what the recorder saw, the operators' shapes, or the optimizer's passes over them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foretrace.errors import TransformError
from foretrace.transforms.costs.activations import Activations, activations, element_bytes
from foretrace.transforms.costs.devices import hardware
from foretrace.transforms.costs.operators import ACCUMULATE, parse_shapes
from foretrace.transforms.costs.optimizer_traffic import FUSED_PASSES, find_any_update
from foretrace.transforms.costs.rules import STREAMING
from foretrace.transforms.edit.columns import is_in
from foretrace.transforms.edit.select import has_device

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from foretrace.graph.model import Graph

    Changes = Sequence[tuple[Sequence[str], float]]

GB = 1e9


@dataclass(frozen=True)
class Memory:
    """Device memory at the peak, in bytes.

    ``source`` is "recorded" (the allocator's total, of which *activations* is what the rest
    leaves), "shapes" or "estimate" (from the times of memory-bound kernels).
    """

    parameters: float
    gradients: float
    optimizer_state: float
    activations: float
    source: str

    @property
    def bytes(self) -> float:
        """All of it. The allocator reserves more; workspaces of libraries come on top."""
        return self.parameters + self.gradients + self.optimizer_state + self.activations


def peak_memory(graph: Graph) -> Memory | None:
    """Return what *graph* needs at its peak; None where nothing tells.

    The peak is taken at the end of the forward pass: parameters, gradients, optimizer states,
    and all that the forward pass keeps for the backward pass. What-ifs that change what is kept
    say so by `keep`.

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
    return _peak(graph, activations(graph), graph.state.kept_activations)


def _peak(graph: Graph, kept: Activations, changes: Changes) -> Memory | None:
    """Return the peak of *graph* with the activations *kept*, after *changes* to them."""
    learns = bool(is_in(graph.tasks["phase"], "backward").any())
    sizes = np.nan_to_num(kept.size)
    changed = sizes * _factors(kept, changes)
    before, held = (
        float(each.sum()) / graph.steps if learns else float(each.max(initial=0.0))
        for each in (sizes, changed)
    )
    parameters = _parameter_bytes(graph)
    gradients = parameters if learns else 0.0
    state = parameters * _states(graph) if learns else 0.0
    recorded = (graph.meta.extra.get("memory") or {}).get("allocated_bytes")
    source = "shapes" if len(kept) and kept.from_shapes.all() else "estimate"
    if recorded and has_device(graph):
        source = "recorded"
        rest = max(recorded - parameters - gradients - state, 0.0)
        held = rest * (held / before if before else 1.0)
    if not parameters + held > 0:
        return None
    return Memory(parameters, gradients, state, held, source)


def keep(graph: Graph, factor: float, *kinds: str) -> Graph:
    """Return *graph* keeping *factor* times the activations of *kinds* (all, without any).

    What-ifs that change what lives from forward to backward call this.
    """
    return graph.with_state(kept_activations=(*graph.state.kept_activations, (kinds, factor)))


def _factors(kept: Activations, changes: Changes) -> npt.NDArray[np.float64]:
    """Return, per tensor, the product of all changes to its kind."""
    factors = np.ones(len(kept))
    for kinds, factor in changes:
        factors[np.isin(kept.kind, kinds) if kinds else slice(None)] *= factor
    return factors


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
    changes = after.state.kept_activations
    grows = any(factor > 1 for _, factor in changes)
    if room is None or (not grows and (there is None or room >= there)):
        return ()
    kept = kept or activations(before)
    old, new = (_peak(before, kept, each) for each in (before.state.kept_activations, changes))
    if old is None or new is None:
        return ()
    needs = new.bytes - max(0.0, old.bytes - (there or np.inf))
    if needs <= room:
        return ()
    text = (
        f"does not fit: needs about {needs / GB:,.1f} GB of the {room / GB:,.1f} GB of memory "
        f"(source: {new.source})"
    )
    return (text,)


def _parameter_bytes(graph: Graph) -> float:
    """Return the parameters' bytes: as recorded, else by their gradients, else by their updates."""
    recorded = (graph.meta.optimizer or {}).get("bytes")
    if recorded:
        return float(recorded)
    if gradients := _gradient_bytes(graph):
        return gradients
    device = hardware(graph)
    if device is None or device.memory_gbps is None:
        return 0.0
    try:
        return find_any_update(graph).pass_ns * device.memory_gbps * STREAMING
    except TransformError:
        return 0.0


def _gradient_bytes(graph: Graph) -> float:
    """Return the bytes of the gradients that one backward pass accumulates."""
    operators = graph.operators
    if not len(operators):
        return 0.0
    once = is_in(operators["name"], ACCUMULATE) & operators["shapes"].notna().to_numpy()
    once &= operators["step"].to_numpy() == operators["step"].to_numpy()[once].max(initial=-1)
    total = 0
    for shapes, dtypes in operators.loc[once, ["shapes", "dtypes"]].itertuples(index=False):
        total += math.prod(parse_shapes(str(shapes))[0]) * element_bytes(str(dtypes))
    return float(total)


def _states(graph: Graph) -> int:
    """Return how many tensors of the parameters' size the optimizer keeps."""
    recorded = (graph.meta.optimizer or {}).get("state_passes")
    try:
        passes = int(recorded or find_any_update(graph).fused_passes)
    except TransformError:
        return 0
    return 2 if passes == FUSED_PASSES["lamb"] else (passes - FUSED_PASSES["sgd_plain"]) // 2
