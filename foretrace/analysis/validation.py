"""Two recordings and a scenario in, `Validation` out: predicted against measured.

Two null models stand beside every prediction. A pair that they get right too proves little.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from foretrace.analysis.evidence.evidence import UNVALIDATED
from foretrace.analysis.null_models import predict_by_paper
from foretrace.analysis.prediction import Prediction, predict_from
from foretrace.analysis.unchanged.baseline import replay_baseline, replay_scenario
from foretrace.errors import TransformError
from foretrace.graph.state import Doubt
from foretrace.tracer.recording.job_metadata import ALLOCATOR
from foretrace.transforms.scenario import as_scenario

if TYPE_CHECKING:
    from foretrace.graph.model import Graph
    from foretrace.transforms.measured.calibration import Calibration
    from foretrace.transforms.scenario import ScenarioLike


@dataclass(frozen=True, repr=False)
class Validation:
    """A prediction, the measured truth, and what the null models would have said. Times in ns.

    ``null_paper_ns`` is the prediction with the published constants of the Daydream paper;
    ``None`` where it has none for this scenario.
    """

    prediction: Prediction
    measured_after_ns: float
    measured_after_source: str
    null_paper_ns: float | None

    @property
    def error(self) -> float:
        """Signed relative error of the prediction."""
        return self.prediction.predicted_ns / self.measured_after_ns - 1

    @property
    def null_no_change_error(self) -> float:
        """Signed relative error of "nothing changes"."""
        return self.prediction.measured.step_ns / self.measured_after_ns - 1

    @property
    def null_paper_error(self) -> float | None:
        """Signed relative error of the paper's constants."""
        if self.null_paper_ns is None:
            return None
        return self.null_paper_ns / self.measured_after_ns - 1

    @property
    def is_inside_interval(self) -> bool:
        """Whether the measurement lies in the interval of the prediction."""
        low, high = self.prediction.interval_ns
        return low <= self.measured_after_ns <= high

    def __repr__(self) -> str:
        """Return what a prompt shows: what was asked, predicted and measured, and the error."""
        prediction, where = self.prediction, "inside" if self.is_inside_interval else "outside"
        low, high = prediction.interval_ns
        return (
            f"<Validation of {prediction.title}: step {prediction.predicted_ns / 1e6:.3f} ms"
            f" predicted, {self.measured_after_ns / 1e6:.3f} ms measured\n error {self.error:+.1%},"
            f" {where} {low / 1e6:.3f} to {high / 1e6:.3f} ms ({prediction.status})>"
        )


def validate(
    before: Graph,
    after: Graph,
    asked: ScenarioLike,
    *,
    measured_ns: float | None = None,
    calibration: Calibration | None = None,
) -> Validation:
    """Predict what was *asked* of *before* and compare with the step that *after* shows.

    Where *after* is in doubt itself (its steps drift, its own replay misses them, others had the
    machine, its graph leaves something open), the doubts of the prediction say so.

    Parameters
    ----------
    measured_ns
        The measured step after the change in ns, where something better than the second
        recording is known.
    calibration
        What operators were measured to cost; the null models do without.

    Raises
    ------
    TransformError
        The scenario does not apply, or *measured_ns* is not positive.
    """
    if measured_ns is not None:
        return compare(before, asked, measured_ns, "given", calibration)
    twin = replay_baseline(after)
    truth = twin.measured
    validation = compare(before, asked, truth.step_ns, truth.source, calibration)
    return _add_doubts(validation, (*twin.doubts, *_doubt_allocator(before, after)))


def compare(
    before: Graph,
    asked: ScenarioLike,
    measured_ns: float,
    source: str,
    calibration: Calibration | None = None,
) -> Validation:
    """Predict what was *asked* of *before* and compare with a known step time in ns."""
    if not 0 < measured_ns < math.inf:
        raise TransformError(f"the measured step after is {measured_ns / 1e6:g} ms, expected > 0")
    scenario, plain = as_scenario(asked), replay_baseline(before)
    baseline = plain if calibration is None else plain.attach(calibration)
    return Validation(
        prediction=predict_from(replay_scenario(baseline, scenario)),
        measured_after_ns=measured_ns,
        measured_after_source=source,
        null_paper_ns=predict_by_paper(plain, scenario),
    )


def _doubt_allocator(before: Graph, after: Graph) -> tuple[Doubt, ...]:
    """Doubt recordings whose processes got memory in different ways: a change of its own."""
    was, now = (graph.meta.extra.get(ALLOCATOR, {}) for graph in (before, after))
    if was == now or not isinstance(was, dict) or not isinstance(now, dict):
        return ()
    names = sorted(name for name in {**was, **now} if was.get(name) != now.get(name))
    text = f"the allocator was set otherwise ({', '.join(names)}): record both in one environment"
    return (Doubt("allocator-differs", text),)


def _add_doubts(validation: Validation, of_truth: tuple[Doubt, ...]) -> Validation:
    """Add doubts about the second recording, which then validates nothing."""
    if not of_truth:
        return validation
    prediction = validation.prediction
    there = tuple(
        doubt._replace(text=f"in the second recording, {doubt.text}") for doubt in of_truth
    )
    doubted = replace(prediction, doubts=(*prediction.doubts, *there), status=UNVALIDATED)
    return replace(validation, prediction=doubted)
