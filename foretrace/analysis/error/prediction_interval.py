"""A prediction and what is known of its errors in, the range that should hold the true step out."""

from __future__ import annotations

import math
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from foretrace.analysis.error.loader_doubts import most_loading_ns
from foretrace.analysis.unchanged.replay_error import DOUBTFUL

if TYPE_CHECKING:
    from foretrace.analysis.unchanged.baseline import Experiment

RESAMPLES = 1_000
SEED = 20_260_101
LEVEL = 0.90
"""Share of true values that an interval means to cover."""


def find_interval(
    experiment: Experiment, predicted_ns: float, shifted_ns: float, half_width: float
) -> tuple[float, float]:
    """Return what the step may be, in ns: variation, errors of replay and rules, other readings.

    ``half_width`` is what answers like it are off, as |ln(true / predicted)|; ``shifted_ns`` is the
    step if what the unchanged replay misses does not change with the rest.
    """
    baseline, after = experiment.baseline, experiment.after
    measured = baseline.measured
    varied = step_interval(measured.samples_ns)
    missed = baseline.timeline.step_ns / measured.step_ns - 1
    low, high = interval(predicted_ns, varied, math.hypot(half_width, math.log1p(missed)))
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


def interval(
    predicted_ns: float, varied: tuple[float, float], half_width: float
) -> tuple[float, float]:
    """Return the range that should hold the true step time with probability `LEVEL`.

    The variation of the recorded steps (`step_interval`) is joined in quadrature with what answers
    like it are off, as |ln(true / predicted)|: up and down by the same factor.

    >>> interval(100.0, (1.0, 1.0), math.log(1.25))
    (80.0, 125.0)
    """
    below, above = (math.hypot(half_width, math.log(end)) for end in varied)
    return predicted_ns * math.exp(-below), predicted_ns * math.exp(above)


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
