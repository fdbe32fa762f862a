"""Graph and scenario in, `Prediction` out: how long a step takes after the change, and why.

The replay never stands alone: what is carried over to the prediction is the *ratio* of the
replays after and before the change, applied to the step time that was really measured.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from foretrace.analysis.error.change_doubts import doubt_change
from foretrace.analysis.error.difficulty import describe_difficulty, python_share
from foretrace.analysis.error.parts import list_parts
from foretrace.analysis.error.prediction_interval import find_interval, step_interval
from foretrace.analysis.evidence.evidence import UNVALIDATED
from foretrace.analysis.evidence.validated_errors import list_cost_sources, validated_error
from foretrace.analysis.evidence.validation_scope import describe_place
from foretrace.analysis.unchanged.baseline import FARTHEST, replay_scenario, run_experiment
from foretrace.analysis.unchanged.doubts import name_doubts
from foretrace.analysis.unchanged.measured_step import Measured
from foretrace.analysis.warnings import warn
from foretrace.errors import ForetraceError, TransformError
from foretrace.transforms.measured.job_identity import attach
from foretrace.transforms.scenario import describe_scenario
from foretrace.util.html_card import card

if TYPE_CHECKING:
    from foretrace.analysis.error.difficulty import Difficulty
    from foretrace.analysis.evidence.validation_scope import Place
    from foretrace.analysis.unchanged.baseline import Baseline, Experiment
    from foretrace.analysis.unchanged.measured_step import Measured
    from foretrace.graph.model import Graph
    from foretrace.graph.state import Doubt
    from foretrace.transforms.measured.calibration import Calibration
    from foretrace.transforms.scenario import ScenarioLike, WhatIf

TRANSFERS = ("collective", "p2p")
"""Kinds of tasks that move data between workers."""


@dataclass(frozen=True, repr=False)
class Prediction:
    """What a scenario does to the step time. Times in ns, of one step.

    ``doubts`` say what in this very answer may be wrong, ``warnings`` what else is good to know.
    ``interval_ns`` covers the variation of the recorded steps, what the unchanged replay misses
    and the error that pairs of real measurements showed for answers as difficult, see
    `foretrace.analysis.error.error_scale`; ``step_interval`` is the relative part that comes from
    the recorded steps alone.
    ``critical_path_before`` and ``_after`` give the ns of a step by cause; their sums are the
    replayed steps. ``costs`` is the share of all work by where its cost came from, ``samples`` how
    many times as many samples a step has afterwards, ``python`` the share of the measured step in
    which no recorded operator ran. ``status`` is "validated", "tested elsewhere"
    or "unvalidated" at ``place``; ``evidence`` says for each what-if which pairs tested it.
    """

    scenario: tuple[str, ...]
    measured: Measured
    replayed_before_ns: float
    replayed_after_ns: float
    interval_ns: tuple[float, float]
    step_interval: tuple[float, float]
    status: str
    critical_path_before: dict[str, float]
    critical_path_after: dict[str, float]
    costs: dict[str, float]
    samples_before: int | None
    samples_after: int | None
    samples: float
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]
    python: float = 0.0
    place: Place | None = None
    evidence: tuple[str, ...] = ()
    doubts: tuple[Doubt, ...] = ()

    @property
    def predicted_ns(self) -> float:
        """The replay after, times what a measured step takes of its replay.

        Transfers that the change put on the critical path were not recorded: they stay as they are.
        """
        before, after = (
            sum(path.get(kind, 0.0) for kind in TRANSFERS)
            for path in (self.critical_path_before, self.critical_path_after)
        )
        added = max(after - before, 0.0)
        recorded = self.replayed_after_ns - added
        return self.measured.step_ns * recorded / self.replayed_before_ns + added

    @property
    def shifted_ns(self) -> float:
        """The measured step and what the replays differ by: what they miss stays as it is.

        `predicted_ns` takes it to change with the rest. Where they miss nothing the two are one.
        """
        return max(self.measured.step_ns + self.replayed_after_ns - self.replayed_before_ns, 0.0)

    @property
    def difficulty(self) -> Difficulty:
        """What explains how far off such an answer is."""
        ratio = self.predicted_ns / self.measured.step_ns
        return describe_difficulty(self.costs, ratio, self.python)

    @property
    def speedup(self) -> float:
        """How many times as many samples per second."""
        return self.samples * self.measured.step_ns / self.predicted_ns

    @property
    def title(self) -> str:
        """What was asked, in one line."""
        return " + ".join(self.scenario) or "no change"

    def __repr__(self) -> str:
        """Return what a prompt shows: what was asked, both steps, the gain and its range."""
        low, high = self.interval_ns
        doubted = f" (in doubt: {', '.join(name_doubts(self.doubts))})" if self.doubts else ""
        return (
            f"<Prediction of {self.title}{doubted}: step {self.measured.step_ns / 1e6:.3f} ms as"
            " measured,"
            f" {self.predicted_ns / 1e6:.3f} ms predicted\n {self.speedup:.2f} times the samples"
            f" per second, {low / 1e6:.3f} to {high / 1e6:.3f} ms ({self.status})>"
        )

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the prediction, its range, and both critical paths."""
        low, high = (ns / 1e6 for ns in self.interval_ns)
        before, after = self.critical_path_before, self.critical_path_after
        doubted = {"doubts": "; ".join(map(str, self.doubts))} if self.doubts else {}
        facts = {
            **doubted,
            "measured step, ms": self.measured.step_ns / 1e6,
            "predicted step, ms": self.predicted_ns / 1e6,
            "interval, ms": f"{low:,.2f} … {high:,.2f} ({self.status})",
            "samples per second": f"{self.speedup:.2f} times as many",
            "assumes": "; ".join(self.assumptions) or "nothing beyond the recording",
            "warnings": "; ".join(self.warnings) or "none",
        }
        bars = {
            f"{cause}, before and after": (before.get(cause, 0) / 1e6, after.get(cause, 0) / 1e6)
            for cause in dict.fromkeys((*before, *after))
        }
        return card(self.title if self.scenario else "No change", facts, bars)


def predict(
    graph: Graph, asked: ScenarioLike, calibration: Calibration | None = None
) -> Prediction:
    """Predict the step time of *graph* after every what-if *asked*, in order.

    With a *calibration*, what it measured goes before every rule.

    Raises
    ------
    TransformError
        A transform does not apply to this graph, a parameter is out of range, or no work is left.
    """
    if calibration is not None:
        graph = attach(graph, calibration)
    return predict_from(run_experiment(graph, asked))


def predict_from(experiment: Experiment) -> Prediction:
    """Predict the step time of a job whose replays before and after a scenario are known.

    Raises
    ------
    TransformError
        The recorded step has no work, none is left, or the step after has nothing to do with it.
    """
    baseline, after = experiment.baseline, experiment.after
    baseline.require_work()
    if after.step_ns <= 0:
        raise TransformError("nothing is left of the step after the change; use a smaller change")
    if not 1 / FARTHEST <= experiment.ratio <= FARTHEST:
        raise TransformError(
            f"the step would take {experiment.ratio:.3g} times as long: no recording tells of "
            "steps a thousand times longer or shorter; use a smaller change"
        )
    graph, changed, measured = baseline.graph, experiment.changed, baseline.measured
    place = describe_place(graph, changed, (baseline.critical_path, experiment.critical_path))
    error = validated_error(list_cost_sources(experiment.scenario, changed), place)
    varied, doubts = step_interval(measured.samples_ns), doubt_change(experiment)
    prediction = Prediction(
        scenario=describe_scenario(experiment.scenario),
        measured=measured,
        replayed_before_ns=baseline.timeline.step_ns,
        replayed_after_ns=after.step_ns,
        interval_ns=(0.0, 0.0),
        step_interval=varied,
        status=UNVALIDATED if doubts else error.evidence.status,
        evidence=error.evidence.lines,
        critical_path_before=baseline.critical_path,
        critical_path_after=experiment.critical_path,
        costs=_cost_shares(changed),
        samples_before=graph.meta.batch_size,
        samples_after=changed.meta.batch_size,
        samples=experiment.samples,
        assumptions=tuple(note for note in changed.notes if note not in graph.notes),
        warnings=warn(experiment, error),
        python=python_share(graph),
        place=place,
        doubts=doubts,
    )
    others = list_parts(experiment.scenario, graph)
    parts = [_predict_alone(baseline, each) for each in others]  # tells which ends are shorter
    half_width = error.of(prediction.difficulty)
    ends = find_interval(experiment, prediction.predicted_ns, prediction.shifted_ns, half_width)
    prediction = replace(prediction, interval_ns=ends)
    if len(experiment.scenario) == 1:
        baseline.alone[_key_of(experiment.scenario[0])] = prediction
    return _span_parts(prediction, [part for part in parts if part])


def _predict_alone(baseline: Baseline, change: WhatIf) -> Prediction | None:
    """Predict one what-if of several without the others; ``None`` where it needs them."""
    key = _key_of(change)
    if key not in baseline.alone:
        try:
            baseline.alone[key] = predict_from(replay_scenario(baseline, [change]))
        except ForetraceError:
            baseline.alone[key] = None
    return baseline.alone[key]


def _key_of(change: WhatIf) -> tuple[str, object]:
    """Return what tells one what-if from another, also two functions of the user's."""
    return str(change), change.function


def _span_parts(prediction: Prediction, parts: list[Prediction]) -> Prediction:
    """Return *prediction* with an interval no narrower, in proportion, than that of any part."""
    every = [prediction, *parts]
    low = min(each.interval_ns[0] / each.predicted_ns for each in every)
    high = max(each.interval_ns[1] / each.predicted_ns for each in every)
    step_ns = prediction.predicted_ns
    return replace(prediction, interval_ns=(low * step_ns, high * step_ns))


def _cost_shares(graph: Graph) -> dict[str, float]:
    cost = graph.tasks["cost"].array
    work = np.bincount(cost.codes + 1, graph.tasks["work_ns"], len(cost.categories) + 1)[1:]
    shares = zip(cost.categories.tolist(), (work / work.sum()).tolist(), strict=True)
    return {str(name): share for name, share in shares if share > 0}
