"""A graph in, its measured step and its replays out: what every answer about a job is made from.

The unchanged job is replayed once, and a scenario once; whoever asks more of them is handed the
`Baseline` or the `Experiment`.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from foretrace.analysis.unchanged.doubts import doubt_recording
from foretrace.analysis.unchanged.measured_step import measured_step
from foretrace.analysis.unchanged.other_readings import read_otherwise
from foretrace.errors import TransformError
from foretrace.replaying.replay import replay
from foretrace.transforms.costs.activations import activations
from foretrace.transforms.costs.assumed import read_as
from foretrace.transforms.distributed.common.hidden_waits import hidden_waits, part_waits
from foretrace.transforms.edit.columns import is_in
from foretrace.transforms.edit.provenance import samples_ratio
from foretrace.transforms.measured.job_identity import attach
from foretrace.transforms.scenario import apply, as_scenario, names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from foretrace.analysis.unchanged.measured_step import Measured
    from foretrace.graph.model import Graph
    from foretrace.graph.state import Doubt
    from foretrace.replaying.timeline import Timeline
    from foretrace.transforms.costs.activations import Activations
    from foretrace.transforms.costs.assumed import Assumed
    from foretrace.transforms.measured.calibration import Calibration
    from foretrace.transforms.scenario import Scenario, ScenarioLike

CHANGING_TRANSFERS = frozenset({"network", "faster_kernels"})
"""What-ifs that make recorded collectives faster or slower, and leave them where they are."""


FARTHEST = 1000.0
"""Times by which a replay may be off the recorded step before nothing is said at all."""


@dataclass(frozen=True)
class Baseline:
    """A job before any change, replayed; what is computed from it is computed on first use."""

    timeline: Timeline

    @property
    def graph(self) -> Graph:
        """The job as recorded."""
        return self.timeline.graph

    @cached_property
    def measured(self) -> Measured:
        """The step as measured."""
        return measured_step(self.graph)

    @cached_property
    def doubts(self) -> tuple[Doubt, ...]:
        """What makes every answer from the recording doubtful."""
        return doubt_recording(self.timeline, self.measured)

    @cached_property
    def critical_path(self) -> dict[str, float]:
        """The ns of a replayed step by cause."""
        return self.timeline.breakdown("kind")

    @cached_property
    def alone(self) -> dict[Any, Any]:
        """Predictions of single what-ifs, kept for the scenarios that they are part of."""
        return {}

    @cached_property
    def activations(self) -> Activations | None:
        """What the job keeps in memory between forward and backward."""
        return activations(self.graph)

    def attach(self, calibration: Calibration) -> Baseline:
        """Return the same replay of the job with what *calibration* measured: no time differs.

        Raises
        ------
        TransformError
            It was taken of a job with other parameters.
        """
        lowered = replace(self.timeline.lowered, graph=attach(self.graph, calibration))
        return Baseline(replace(self.timeline, lowered=lowered))

    def require_work(self) -> None:
        """Refuse a job from which nothing can be predicted.

        Raises
        ------
        TransformError
            The recorded step has no work, or work that has nothing to do with its length.
        """
        if self.timeline.step_ns <= 0:
            raise TransformError("the recorded step has no work, so no ratio can be formed")
        if not 1 / FARTHEST <= self.timeline.step_ns / self.measured.step_ns <= FARTHEST:
            raise TransformError(
                f"the recorded step takes {self.measured.step_ns / 1e6:.3g} ms, its replay "
                f"{self.timeline.step_ns / 1e6:.3g} ms: a time in the recording is broken"
            )


@dataclass(frozen=True)
class Experiment:
    """A scenario tried on a job: the job before it, and the replay after it."""

    baseline: Baseline
    scenario: Scenario
    after: Timeline

    @property
    def changed(self) -> Graph:
        """The job after the change."""
        return self.after.graph

    @cached_property
    def critical_path(self) -> dict[str, float]:
        """The ns of a replayed step by cause, after the change."""
        return self.after.breakdown("kind")

    @cached_property
    def other_steps_ns(self) -> dict[str, tuple[float, ...]]:
        """Per code of a doubt the replayed steps if the recording is read otherwise."""
        return read_otherwise(self.baseline.timeline, self.after)

    @property
    def ratio(self) -> float:
        """The replayed step after the change over the one before."""
        return self.after.step_ns / self.baseline.timeline.step_ns

    @cached_property
    def latency_ratios(self) -> tuple[float, ...]:
        """The same with the latency of recorded collectives at either end of its range.

        Empty unless `network` needed it.
        """
        if self.changed.state.latency_range is None:
            return ()
        before = self.baseline.timeline
        ends = [before.graph.with_state(latency_end=end) for end in ("least", "most")]
        after = [replay(apply(graph, self.scenario), like=before) for graph in ends]
        return tuple(timeline.step_ns / before.step_ns for timeline in after)

    @cached_property
    def waiting_ratio(self) -> float:
        """The same where collectives of the only recorded rank waited as long as they may have.

        That stays, however fast they are; `ratio` takes all of it to be the transfer.
        """
        graph = self.baseline.graph
        if _collective_ns(graph) == _collective_ns(self.changed):
            return self.ratio
        waits = hidden_waits(graph)
        if not waits.any() or not CHANGING_TRANSFERS.issuperset(names(self.scenario)):
            return self.ratio
        before = replay(part_waits(graph, waits))
        return replay(apply(before.graph, self.scenario), like=before).step_ns / before.step_ns

    @cached_property
    def assumed_ratios(self) -> tuple[float, ...]:
        """The same with the constants that no publication gives at the ends of their ranges.

        Of those only that the scenario used: all at once that are known to make a step longer or
        shorter, and each of the others alone.
        """
        used = self.changed.state.assumed
        known = [each for each in used if each.more_is_longer is not None]
        together = [
            dict(zip(known, ends, strict=True))
            for ends in zip(*map(_by_length, known), strict=True)
        ]
        alone = [{each: end} for each in used if each not in known for end in each.ends]
        return tuple(map(self._ratio_at, [*together, *alone]))

    def _ratio_at(self, values: Mapping[Assumed, float]) -> float:
        """Return the ratio where constants have other *values*."""
        if all(constant.value == value for constant, value in values.items()):
            return self.ratio
        before = self.baseline.timeline
        with ExitStack() as stack:
            for constant, value in values.items():
                stack.enter_context(read_as(constant, value))
            changed = apply(before.graph, self.scenario)
        return replay(changed, like=before).step_ns / before.step_ns

    @property
    def samples(self) -> float:
        """How many times as many samples a step has afterwards."""
        return samples_ratio(self.baseline.graph, self.changed)


def _by_length(constant: Assumed) -> tuple[float, float]:
    """Return the end of its range that makes a step shorter, and the other one."""
    least, most = constant.ends
    return (least, most) if constant.more_is_longer else (most, least)


def _collective_ns(graph: Graph) -> int:
    return int(graph.tasks["work_ns"][is_in(graph.tasks["kind"], "collective")].sum())


def run_experiment(graph: Graph, asked: ScenarioLike) -> Experiment:
    """Replay *graph* before and after every what-if *asked*.

    Raises
    ------
    TransformError
        A transform does not apply to this graph, or a parameter is out of range.
    """
    return replay_scenario(replay_baseline(graph), asked)


def replay_baseline(graph: Graph) -> Baseline:
    """Replay *graph* unchanged, once for all that is asked of it."""
    return Baseline(replay(graph))


def replay_scenario(baseline: Baseline, asked: ScenarioLike) -> Experiment:
    """Replay the job of *baseline* after every what-if *asked*; without any it is not done again.

    Raises
    ------
    TransformError
        A transform does not apply to this graph, or a parameter is out of range.
    """
    scenario, before = as_scenario(asked), baseline.timeline
    after = replay(apply(baseline.graph, scenario), like=before) if scenario else before
    return Experiment(baseline, scenario, after)
