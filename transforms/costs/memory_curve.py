"""Who holds device memory over a step, and what what-ifs make of it.

In: a graph. Out: a `Curve`: bytes per part at moments of the step. Where an allocator's events were
recorded they are the curve; elsewhere it is estimated from what forward keeps for backward.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from foretrace.graph.state import MEMORY_PARTS
from foretrace.transforms.costs.activations import activations
from foretrace.transforms.costs.held_bytes import (
    cast_bytes,
    gradients_stay,
    optimizer_state_bytes,
    parameter_bytes,
    update_bytes,
)
from foretrace.transforms.costs.lifetimes import find_lifetimes, recorded_lifetimes
from foretrace.transforms.edit.columns import is_in
from foretrace.transforms.edit.select import has_device

if TYPE_CHECKING:
    import numpy.typing as npt

    from foretrace.graph.model import Graph
    from foretrace.graph.state import ActivationChange, Allocations, JobState
    from foretrace.transforms.costs.activations import Activations
    from foretrace.transforms.costs.lifetimes import Lifetimes

    Floats = npt.NDArray[np.float64]

PART = {name: at for at, name in enumerate(MEMORY_PARTS)}
BY_SAMPLES = ("activations", "temporary", "inputs")
"""Parts that grow with the samples of a step."""
RECORDED, PARTLY, SHAPES, ESTIMATE = "recorded", "partly recorded", "shapes", "estimate"


@dataclass(frozen=True)
class Curve:
    """Bytes of each of `MEMORY_PARTS` (columns of ``held``) at moments of the recording.

    ``source`` is "recorded" (all of it by the allocator's events), "partly recorded" (what was held
    before them is estimated), "shapes" or "estimate" (from the times of memory-bound kernels).
    ``kept`` are the activations that what-ifs change, one by one, ``blocks`` the same as the
    allocator's events show them (without events, as ``kept``), ``cast`` the bytes of weights that
    autocast would keep in 16 bits.
    """

    start_ns: npt.NDArray[np.int64]
    phases: tuple[str, ...]
    held: Floats
    source: str
    kept: Lifetimes
    blocks: Lifetimes
    cast: float

    @property
    def total(self) -> Floats:
        """Bytes at each moment."""
        total: Floats = self.held.sum(axis=1)
        return total

    def at(self, moments: npt.NDArray[np.bool_]) -> Curve:
        """Return only these *moments* of it."""
        phases = tuple(np.array(self.phases)[moments].tolist())
        return replace(
            self, start_ns=self.start_ns[moments], phases=phases, held=self.held[moments]
        )

    def after(self, state: JobState) -> Curve:
        """Return it after the what-ifs that *state* has seen."""
        held = self.held.copy()
        cast = self.cast if state.autocast else 0.0
        shape = held[:, PART["activations"]] / max(held[:, PART["activations"]].max(), 1.0)
        held[:, PART["activations"]] *= self._kept_share(state.kept_activations)
        held[:, PART["activations"]] += cast * shape
        narrower = tuple(each for each in state.kept_activations if each.gradients)
        held[:, PART["temporary"]] *= self._kept_share(narrower)
        if state.gradients_stay:
            held[:, PART["gradients"]] = held[:, PART["gradients"]].max()
        for part, factor, added in state.memory_changes:
            held[:, PART[part]] = held[:, PART[part]] * factor + added
        return replace(self, held=held)

    def _kept_share(self, changes: tuple[ActivationChange, ...]) -> Floats:
        """Return what part of the activations *changes* leave at each moment.

        Those of some kinds are reckoned by what operators keep, others by the blocks, if recorded.
        """
        everywhere = tuple(each for each in changes if not each.kinds)
        of_kinds = tuple(each for each in changes if each.kinds)
        always = float(np.prod([each.factor for each in everywhere]))
        share = np.ones(len(self.start_ns))
        for stays, mine, else_ in (
            (self.kept, of_kinds, 1.0),
            (self.blocks, everywhere, always),
        ):
            before, after = (each.held(self.start_ns) for each in (stays, stays.after(mine)))
            known = np.where(before > 0, np.arange(len(before)), -1)
            last = np.maximum.accumulate(known)  # a tensor goes a little after it was needed
            ratio = after[last] / np.maximum(before[last], 1.0)
            share *= np.where(last >= 0, ratio, else_)
        return share

    def grown(self, ratio: float) -> Curve:
        """Return it with *ratio* times the samples in a step."""
        held = self.held.copy()
        held[:, [PART[part] for part in BY_SAMPLES]] *= ratio
        return replace(self, held=held)


def memory_curve(graph: Graph, kept: Activations | None = None) -> Curve | None:
    """Return who holds memory in the job as recorded; None where nothing tells.

    *kept* are its activations, where they are known. What-ifs in *graph* are not applied: see
    `Curve.after`.
    """
    kept = activations(graph) if kept is None else kept
    recorded = graph.state.allocations
    on_device = has_device(graph)
    if recorded is not None and (recorded.device >= 0) == on_device:
        return _recorded(graph, recorded, find_lifetimes(graph, kept))
    curve = _estimated(graph, kept)
    total = (graph.meta.extra.get("memory") or {}).get("allocated_bytes")
    curve = _raised_to(curve, float(total)) if total and on_device else curve
    return curve if curve.total.max() > 0 else None


def _raised_to(curve: Curve, total: float) -> Curve:
    """Return *curve* with the recorded *total* at its peak: activations are what is left."""
    held = curve.held.copy()
    column = held[:, PART["activations"]]
    rest, has = curve.total - column, column > 0
    if has.any():
        column *= max(float(((total - rest[has]) / column[has]).min()), 0.0)
    held[:, PART["other"]] += max(total - float(held.sum(axis=1).max()), 0.0)
    return replace(curve, held=held, source=RECORDED)


def _recorded(graph: Graph, recorded: Allocations, kept: Lifetimes) -> Curve:
    """Return what the allocator's events say, and what was there before by what is known of it."""
    held = np.array(recorded.held, np.float64)
    live = graph.meta.extra.get("live_bytes") or {}
    parameters = live.get("parameters") or parameter_bytes(graph)
    states = live["optimizer_state"] if live else optimizer_state_bytes(graph)
    gradients = parameters if gradients_stay(graph) else 0.0
    if live:
        gradients = live["gradients"] - held[-1, PART["gradients"]]
    room = np.inf if recorded.before is None else recorded.before
    for part, size in (
        ("parameters", parameters),
        ("optimizer_state", states),
        ("gradients", gradients),
        ("inputs", live.get("inputs", 0.0)),
    ):
        taken = min(max(size, 0.0), room)
        held[:, PART[part]] += taken
        room -= taken
    if recorded.before is not None:
        held[:, PART["other"]] += room
    source = PARTLY if recorded.before is None else RECORDED
    blocks = recorded_lifetimes(recorded.blocks) if recorded.blocks else kept
    start, phases = np.array(recorded.start_ns), recorded.phases
    return Curve(start, phases, held, source, kept, blocks, cast_bytes(graph))


def _estimated(graph: Graph, kept: Activations) -> Curve:
    """Return the curve of the last step: activations come in forward and go in backward."""
    learns = bool(is_in(graph.tasks["phase"], "backward").any())
    step = graph.tasks["step"].to_numpy()[kept.forward]
    last = step == step.max(initial=-1)
    stays = find_lifetimes(graph, kept)
    of_last = stays.where(stays.step == stays.step.max(initial=-1))
    count = len(of_last.begin)
    by_need = np.argsort(of_last.end, kind="stable") if learns else np.zeros(0, np.int64)
    end = max(graph.tasks["start_ns"].max(), of_last.end.max(initial=0)) + 1
    times = np.concatenate([of_last.begin, of_last.end[by_need], [end]]).astype(np.int64)
    held = np.zeros((len(times), len(MEMORY_PARTS)))
    held[:-1, PART["activations"]] = of_last.held(times[:-1])
    parameters = parameter_bytes(graph)
    held[:, PART["parameters"]] = parameters
    if learns:
        sizes = of_last.size[by_need]  # as large as the gradients that go in and come out
        held[count:-1, PART["temporary"]] = sizes + np.append(0.0, sizes[:-1])
        done = np.append(np.zeros(count), np.arange(1, count + 2) / (count + 1))
        stay = gradients_stay(graph)
        held[:, PART["gradients"]] = parameters * (1.0 if stay else done)
        held[:, PART["optimizer_state"]] = optimizer_state_bytes(graph)
        held[-1, PART["update"]] = update_bytes(graph)
    phases = ("forward",) * count + (("backward",) * count + ("optimizer",) if learns else ("",))
    has_shapes = bool(count) and bool(kept.from_shapes[last].all())
    source = SHAPES if has_shapes else ESTIMATE
    return Curve(times, phases, held, source, stays, stays, cast_bytes(graph))
