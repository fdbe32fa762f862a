"""A replay without any change against the measured step: what a recording is worth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from foretrace.analysis.unchanged.baseline import replay_baseline
from foretrace.analysis.unchanged.doubts import name_doubts

if TYPE_CHECKING:
    from foretrace.analysis.unchanged.baseline import Baseline
    from foretrace.analysis.unchanged.measured_step import Measured
    from foretrace.graph.model import Graph
    from foretrace.graph.state import Doubt


@dataclass(frozen=True, repr=False)
class Identity:
    """A replay without any change against the measured step. Times in ns, of one step."""

    measured: Measured
    replayed_ns: float
    host_ns: float | None
    device_ns: float | None
    settled: bool
    critical_path: dict[str, float]
    warnings: tuple[str, ...]
    doubts: tuple[Doubt, ...] = ()

    @property
    def error(self) -> float:
        """Signed relative error of the replay."""
        return self.replayed_ns / self.measured.step_ns - 1

    def __repr__(self) -> str:
        """Return what a prompt shows: both steps and the error."""
        doubted = f" (in doubt: {', '.join(name_doubts(self.doubts))})" if self.doubts else ""
        return (
            f"<Identity{doubted}: step {self.replayed_ns / 1e6:.3f} ms replayed,"
            f" {self.measured.step_ns / 1e6:.3f} ms measured, error {self.error:+.1%}>"
        )


def identity(graph: Graph) -> Identity:
    """Replay *graph* unchanged and put the result beside the measured step."""
    return identity_from(replay_baseline(graph))


def identity_from(baseline: Baseline) -> Identity:
    """Put the replay of *baseline* beside the measured step."""
    timeline = baseline.timeline
    return Identity(
        measured=baseline.measured,
        replayed_ns=timeline.step_ns,
        host_ns=timeline.host_step_ns,
        device_ns=timeline.device_step_ns,
        settled=timeline.settled,
        critical_path=baseline.critical_path,
        warnings=baseline.graph.notes,
        doubts=baseline.doubts,
    )
