"""Two recordings and a scenario in, `Validation` out: predicted against measured.

Two null models stand beside every prediction. A pair that they get right too proves little.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from foretrace.analysis.null_models import paper
from foretrace.analysis.prediction import Prediction, measured_step, predict
from foretrace.analysis.warnings import of_measurement
from foretrace.errors import TransformError
from foretrace.transforms.scenario import as_scenario

if TYPE_CHECKING:
    from foretrace.graph.model import Graph
    from foretrace.transforms.measured.calibration import Calibration
    from foretrace.transforms.scenario import Asked, Scenario


@dataclass(frozen=True)
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


def validate(
    before: Graph,
    after: Graph,
    asked: Asked,
    *,
    measured_ns: float | None = None,
    calibration: Calibration | None = None,
) -> Validation:
    """Predict what was *asked* of *before* and compare with the step that *after* shows.

    Where the steps of *after* drift, the warnings of the prediction say so.

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
    scenario = as_scenario(asked)
    if measured_ns is None:
        truth = measured_step(after)
        found = compare(before, scenario, truth.step_ns, truth.source, calibration)
        return _warned(found, of_measurement(truth))
    return compare(before, scenario, measured_ns, "given", calibration)


def compare(
    before: Graph,
    scenario: Scenario,
    measured_ns: float,
    source: str,
    calibration: Calibration | None = None,
) -> Validation:
    """Predict *scenario* on *before* and compare with a known step time in ns."""
    if not 0 < measured_ns < math.inf:
        raise TransformError(f"the measured step after is {measured_ns / 1e6:g} ms, expected > 0")
    return Validation(
        prediction=predict(before, scenario, calibration),
        measured_after_ns=measured_ns,
        measured_after_source=source,
        null_paper_ns=_paper_prediction(before, scenario),
    )


def _warned(found: Validation, of_truth: tuple[str, ...]) -> Validation:
    told = tuple(f"in the second recording, {text}" for text in of_truth)
    prediction = replace(found.prediction, warnings=found.prediction.warnings + told)
    return replace(found, prediction=prediction)


def _paper_prediction(before: Graph, scenario: Scenario) -> float | None:
    try:
        return predict(before, paper(scenario)).predicted_ns
    except TransformError:
        return None
