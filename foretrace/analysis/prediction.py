"""Graph and scenario in, `Prediction` out: how long a step takes after the change, and why.

The replay never stands alone: what is carried over to the prediction is the *ratio* of the
replays after and before the change, applied to the step time that was really measured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from foretrace.analysis.baseline import run_experiment
from foretrace.analysis.change_doubts import doubt_change
from foretrace.analysis.doubts import name_doubts
from foretrace.analysis.loader_doubts import most_loading_ns
from foretrace.analysis.measured_step import Measured
from foretrace.analysis.replay_error import DOUBTFUL
from foretrace.analysis.validated_errors import list_cost_sources, validated_error
from foretrace.analysis.validation_scope import describe_setting
from foretrace.analysis.warnings import warn
from foretrace.errors import TransformError
from foretrace.transforms.edit.select import has_device
from foretrace.transforms.measured.job_identity import attach
from foretrace.transforms.scenario import describe_scenario
from foretrace.util.html_card import card

if TYPE_CHECKING:
    from foretrace.analysis.baseline import Experiment
    from foretrace.analysis.measured_step import Measured
    from foretrace.graph.model import Graph
    from foretrace.graph.state import Doubt
    from foretrace.transforms.measured.calibration import Calibration
    from foretrace.transforms.scenario import ScenarioLike

TRANSFERS = ("collective", "p2p")
"""Kinds of tasks that move data between workers."""
RESAMPLES = 1_000
SEED = 20_260_101
UNTESTED = 0.02
"""Share by which a replay may be off after a change that no pair has tested: unchanged, 32 of 34
public recordings are replayed within it, and of programs of known truth 9 in 10 after a change."""
LEVEL = 0.90
"""Share of true values that an interval means to cover."""


@dataclass(frozen=True, repr=False)
class Prediction:
    """What a scenario does to the step time. Times in ns, of one step.

    ``doubts`` say what in this very answer may be wrong, ``warnings`` what else is good to know.
    ``interval_ns`` covers the variation of the recorded steps, what the unchanged replay misses
    and the error that pairs of real measurements showed: of these transforms, where they tested
    them, else the share of a change that other rules missed;
    ``step_interval`` is the relative part that comes from the recorded steps alone.
    ``critical_path_before`` and ``_after`` give the ns of a step by cause; their sums are the
    replayed steps. ``costs`` is the share of all work by where its cost came from, ``samples`` how
    many times as many samples a step has afterwards. ``setting`` is where its workers run.
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
    setting: str = ""
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
        The recorded step has no work, or none is left.
    """
    baseline, after = experiment.baseline, experiment.after
    baseline.require_work()
    if after.step_ns <= 0:
        raise TransformError("nothing is left of the step after the change; use a smaller change")
    graph, changed, measured = baseline.graph, experiment.changed, baseline.measured
    setting = describe_setting(graph, changed)
    error = validated_error(
        list_cost_sources(experiment.scenario, changed),
        on_device=has_device(graph),
        where=setting,
    )
    varied, doubts = step_interval(measured.samples_ns), doubt_change(experiment)
    prediction = Prediction(
        scenario=describe_scenario(experiment.scenario),
        measured=measured,
        replayed_before_ns=baseline.timeline.step_ns,
        replayed_after_ns=after.step_ns,
        interval_ns=(0.0, 0.0),
        step_interval=varied,
        status="validated" if error.is_validated and not doubts else "unvalidated",
        critical_path_before=baseline.critical_path,
        critical_path_after=experiment.critical_path,
        costs=_cost_shares(changed),
        samples_before=graph.meta.batch_size,
        samples_after=changed.meta.batch_size,
        samples=experiment.samples,
        assumptions=tuple(note for note in changed.notes if note not in graph.notes),
        warnings=warn(experiment, error),
        setting=setting,
        doubts=doubts,
    )
    missed = baseline.timeline.step_ns / measured.step_ns - 1
    untested = UNTESTED if error.missing else 0.0
    wrong = math.hypot(error.of(experiment.ratio), missed, untested)
    low, high = interval(prediction.predicted_ns, varied, wrong)
    if abs(missed) > DOUBTFUL:
        low, high = min(low, prediction.shifted_ns), max(high, prediction.shifted_ns)
    unseen = (*experiment.latency_ratios, experiment.waiting_ratio)
    ends = [ratio / experiment.ratio for ratio in unseen]
    low, high = low * min([1.0, *ends]), high * max([1.0, *ends])
    for other_ns in chain.from_iterable(experiment.other_steps_ns.values()):
        other = prediction.predicted_ns * other_ns / after.step_ns
        low, high = min(low, other), max(high, other)
    return replace(prediction, interval_ns=(low, max(high, most_loading_ns(experiment))))


def interval(predicted_ns: float, varied: tuple[float, float], error: float) -> tuple[float, float]:
    """Return the range that should hold the true step time with probability `LEVEL`.

    The variation of the recorded steps (`step_interval`) is joined in quadrature with *error*,
    the relative error that validation found.

    >>> interval(100.0, (1.0, 1.0), 0.25)
    (75.0, 125.0)
    """
    low, high = varied
    below, above = float(np.hypot(1 - low, error)), float(np.hypot(high - 1, error))
    return predicted_ns * max(1 - below, 0.0), predicted_ns * (1 + above)


def step_interval(samples_ns: tuple[int, ...]) -> tuple[float, float]:
    """Return the relative interval of the mean of the steps (bootstrap with a fixed seed)."""
    if len(samples_ns) < 2:  # noqa: PLR2004  # one step shows no variation
        return 1.0, 1.0
    samples = np.asarray(samples_ns, np.float64)
    picks = np.random.default_rng(SEED).integers(0, len(samples), (RESAMPLES, len(samples)))
    means = samples[picks].mean(axis=1) / samples.mean()
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return min(float(low), 1.0), max(float(high), 1.0)


def _cost_shares(graph: Graph) -> dict[str, float]:
    cost = graph.tasks["cost"].array
    work = np.bincount(cost.codes + 1, graph.tasks["work_ns"], len(cost.categories) + 1)[1:]
    shares = zip(cost.categories.tolist(), (work / work.sum()).tolist(), strict=True)
    return {str(name): share for name, share in shares if share > 0}
