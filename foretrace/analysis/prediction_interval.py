"""A prediction and what is known of its errors in, the range that should hold the true step out."""

from __future__ import annotations

import math
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from foretrace.analysis.loader_doubts import most_loading_ns
from foretrace.analysis.replay_error import DOUBTFUL

if TYPE_CHECKING:
    from foretrace.analysis.baseline import Experiment
    from foretrace.analysis.validated_errors import ValidatedError

RESAMPLES = 1_000
SEED = 20_260_101
UNTESTED = 0.02
"""Share by which a replay may be off after a change that no pair has tested: unchanged, 32 of 34
public recordings are replayed within it, and of programs of known truth 9 in 10 after a change."""
LEVEL = 0.90
"""Share of true values that an interval means to cover."""


def find_interval(
    experiment: Experiment, predicted_ns: float, shifted_ns: float, error: ValidatedError
) -> tuple[float, float]:
    """Return what the step may be, in ns: variation, errors of replay and rules, other readings.

    ``shifted_ns`` is the step if what the unchanged replay misses does not change with the rest.
    """
    baseline, after = experiment.baseline, experiment.after
    measured = baseline.measured
    varied = step_interval(measured.samples_ns)
    missed = baseline.timeline.step_ns / measured.step_ns - 1
    untested = UNTESTED if error.missing else 0.0
    wrong = math.hypot(error.of(experiment.ratio), missed, untested)
    low, high = interval(predicted_ns, varied, wrong)
    if abs(missed) > DOUBTFUL:
        low, high = min(low, shifted_ns), max(high, shifted_ns)
    unseen = (*experiment.latency_ratios, experiment.waiting_ratio)
    ends = [ratio / experiment.ratio for ratio in unseen]
    low, high = low * min([1.0, *ends]), high * max([1.0, *ends])
    other_ns = chain.from_iterable(experiment.other_steps_ns.values())
    others = [*(ns / after.step_ns for ns in other_ns)]
    others += [ratio / experiment.ratio for ratio in experiment.assumed_ratios]
    at = [predicted_ns * other for other in others]
    return min([low, *at]), max([high, *at, most_loading_ns(experiment)])


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
