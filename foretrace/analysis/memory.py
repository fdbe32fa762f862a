"""Who holds a job's memory, what what-ifs make of it, and what fits.

In: a graph. Out: a `MemoryReport`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foretrace.errors import TransformError
from foretrace.transforms.costs.devices import device_named
from foretrace.transforms.costs.memory_curve import memory_curve
from foretrace.transforms.costs.peak_memory import GB, capacity_bytes, peak_of
from foretrace.transforms.costs.sequence_length import find_sequence
from foretrace.transforms.scenario import apply, as_scenario

if TYPE_CHECKING:
    from collections.abc import Callable

    from foretrace.graph.model import Graph
    from foretrace.transforms.costs.memory_curve import Curve
    from foretrace.transforms.costs.peak_memory import Memory
    from foretrace.transforms.costs.sequence_length import Sequence
    from foretrace.transforms.scenario import ScenarioLike

MOST_TIMES = 2.0**20
"""Times the recorded samples beyond which nobody asks."""
HALVINGS = 60


@dataclass(frozen=True)
class Room:
    """What fits into ``capacity`` bytes of the device: ``times`` the recorded ``size``.

    ``size`` is the batch of a step, or the length of a sequence; None where it is not known.
    """

    of: str
    size: int | None
    times: float

    @property
    def largest(self) -> int | None:
        """The largest size that fits."""
        return None if self.size is None else math.floor(self.times * self.size)


@dataclass(frozen=True)
class Variant:
    """The peak under some what-ifs (none: as recorded), and what fits then."""

    what_ifs: tuple[str, ...]
    peak: Memory
    rooms: tuple[Room, ...]
    capacity: float | None

    @property
    def fits(self) -> bool | None:
        """Whether the device holds it; None where its memory is not known."""
        return None if self.capacity is None else self.peak.bytes <= self.capacity


@dataclass(frozen=True)
class MemoryReport:
    """The memory of a job. Bytes; ``phases`` has the highest moment of each phase.

    ``reserved`` is the most that the allocator took from the driver, ``over_time`` (start in ns,
    phase, bytes) at moments of the recording. ``refused`` are what-ifs that do not apply, and why.
    """

    source: str
    device: str
    variants: tuple[Variant, ...]
    phases: dict[str, Memory]
    reserved: float | None
    over_time: tuple[tuple[int, str, float], ...]
    refused: tuple[tuple[str, str], ...]

    @property
    def fragmentation(self) -> float | None:
        """What was reserved at most and not handed out at the peak."""
        return (
            None if self.reserved is None else max(self.reserved - self.variants[0].peak.bytes, 0.0)
        )


def report_memory(
    graph: Graph, asked: ScenarioLike = (), *, device: str | None = None
) -> MemoryReport:
    """Return the memory of *graph*, as recorded, after each what-if *asked*, and after all of them.

    Parameters
    ----------
    graph
        The job.
    asked
        What-ifs. One that does not apply is reported as refused.
    device
        Name of the device that it has to fit; the recorded one by default.

    Raises
    ------
    TransformError
        Nothing in the recording tells how much memory it takes, or the device is not known.
    """
    curve = memory_curve(graph)
    if curve is None:
        raise TransformError(
            "nothing tells how much memory this job takes: record with profile_memory=True or "
            "record_shapes=True"
        )
    capacity = None if device is None else _capacity_of(device)
    scenario = as_scenario(asked)
    steps = [(), *((each,) for each in scenario)]
    if len(scenario) > 1:
        steps.append(tuple(scenario))
    sequence = find_sequence(graph)
    variants, refused = [], []
    for step in steps:
        try:
            changed = apply(graph, step) if step else graph
        except TransformError as error:
            refused.append((" + ".join(map(str, step)), str(error)))
            continue
        variants.append(_variant(curve, step, changed, sequence, capacity))
    allocator = graph.meta.extra.get("memory") or {}
    return MemoryReport(
        source=graph.meta.source,
        device=device or next((d.name for d in graph.meta.devices if d.name), ""),
        variants=tuple(variants),
        phases=_phases(curve),
        reserved=allocator.get("reserved_bytes"),
        over_time=tuple(
            zip(curve.start_ns.tolist(), curve.phases, curve.total.tolist(), strict=True)
        ),
        refused=tuple(refused),
    )


def _capacity_of(name: str) -> float:
    size = device_named(name).figures.get("memory_gb")
    if size is None:
        raise TransformError(f"device {name!r}: its memory is not in the table")
    return size * GB


def _variant(
    curve: Curve,
    step: tuple[object, ...],
    changed: Graph,
    sequence: Sequence | None,
    capacity: float | None,
) -> Variant:
    room = capacity_bytes(changed) if capacity is None else capacity
    after = curve.after(changed.state)
    rooms = []
    if room is not None:
        size = changed.meta.batch_size
        rooms.append(Room("batch", size, _largest(after.grown, room)))
        if sequence is not None:
            longer = _longer(after, sequence.squared)
            rooms.append(Room("sequence", sequence.length, _largest(longer, room)))
    return Variant(tuple(map(str, step)), peak_of(after), tuple(rooms), room)


def _longer(curve: Curve, squared: float) -> Callable[[float], Curve]:
    """Return what gives the curve at a multiple of the length, of which *squared* goes twice."""
    return lambda times: curve.grown(times * ((1 - squared) + squared * times))


def _largest(grown: Callable[[float], Curve], room: float) -> float:
    """Return how many times larger a job still fits; 0 where it does not at any size."""
    least, most = 0.0, MOST_TIMES
    if grown(0.0).total.max() > room:
        return 0.0
    for _ in range(HALVINGS):
        middle = (least + most) / 2
        least, most = (middle, most) if grown(middle).total.max() <= room else (least, middle)
    return least


def _phases(curve: Curve) -> dict[str, Memory]:
    """Return the highest moment of each phase, in order of time."""
    names = np.array(curve.phases)
    return {name: peak_of(curve.at(names == name)) for name in dict.fromkeys(curve.phases) if name}
