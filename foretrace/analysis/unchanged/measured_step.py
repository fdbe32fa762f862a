"""A graph in, the step that its recording measured out: the truth that predictions start from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from foretrace.tracer.step_stats import trimmed_mean

if TYPE_CHECKING:
    from foretrace.graph.model import Graph


@dataclass(frozen=True)
class Measured:
    """The step time that a recording shows.

    ``source`` is ``"unprofiled"`` where the recorder measured the job without the profiler,
    else ``"profiled"``. ``samples_ns`` are the single steps. ``steps_from`` is the range that
    begins a step, ``None`` where no steps were found.
    """

    step_ns: float
    source: str
    samples_ns: tuple[int, ...]
    steps_from: str | None = None


def measured_step(graph: Graph) -> Measured:
    """Return the best measurement of a step that *graph* carries."""
    unprofiled, marker = graph.meta.unprofiled_step_ns, graph.state.steps_from
    if unprofiled:
        return Measured(trimmed_mean(unprofiled), "unprofiled", unprofiled, marker)
    return Measured(graph.measured_step_ns, "profiled", graph.step_samples_ns, marker)
