"""Possible futures of a loss: curves fitted to resampled logs, the forms' own error, and noise.

In: times since the beginning and losses of a log, and how far forms can be trusted. Out: for each
of many futures when it reaches a target, and how low it gets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foretrace.job.convergence.backtest import (
    LARGEST,
    USUAL_FALL,
    Fitted,
    Trust,
    fit_last,
    select_contenders,
)
from foretrace.job.convergence.statistics import TINY, level, moving_mean, noise, trailing_mean

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

MOST_AHEAD = 50_000
"""Rows that a future has at most: those of logs with long gaps lie further apart."""
LEAST_NOISE = 1e-3
"""Part of the largest misfit that noise has at least: logs without any are not resampled."""
ANCHOR = 0.25
"""Part of the fitted rows from which the loss at the last step is read."""
ANCHOR_FREEDOM = 4.0
"""Errors of that loss have longer tails than a normal distribution."""
GROWTH = 0.25
"""Errors of forms grow with this power of how often the known steps are doubled."""


class Futures(NamedTuple):
    """For each drawn future: when it reaches the target, the lowest mean, where it levels off.

    Times are since the beginning of the log, infinite where the target is not reached before the
    horizon.
    """

    reached: Floats
    lowest: Floats
    asymptotes: Floats


def draw_futures(
    times: Floats,
    losses: Floats,
    trusted: dict[str, Trust],
    target: float,
    *,
    window: int,
    horizon: float,
    draws: int,
    random: np.random.Generator,
) -> Futures:
    """Draw futures until *horizon*, which is in the unit of *times*.

    The forms that the tails do not tell apart get equal shares of the *draws*. A future reaches
    *target* when the mean of its last *window* rows is no higher.
    """
    forms = select_contenders(trusted)
    each = -(-draws // len(forms))
    span = horizon - times[-1]
    count = min(MOST_AHEAD, int(span / np.median(np.diff(times[len(times) // 2 :]))))
    ahead = times[-1] + span / count * np.arange(1, 1 + count)
    before = losses[len(losses) - window + 1 :]
    futures = []
    for form in forms:
        fitted = fit_last(form, times, losses)
        assert fitted is not None
        futures += _draw_of_form(fitted, trusted[form], before, ahead, target, each, random)
    return Futures(*(np.array(column) for column in zip(*futures, strict=True)))


def _draw_of_form(
    fitted: Fitted,
    trust: Trust,
    before: Floats,
    ahead: Floats,
    target: float,
    draws: int,
    random: np.random.Generator,
) -> list[tuple[float, float, float]]:
    window, last = len(before) + 1, fitted.times[-1]
    expected = fitted.curves.at(fitted.times)[0]
    left = fitted.losses - expected
    spread = np.maximum(noise(fitted.losses), LEAST_NOISE * np.abs(left).max() + TINY)
    pure = _pure_noise(left) / spread
    block = max(1, min(len(left) // 4, window))
    resampled = expected + spread * _blocks(pure, draws, len(left), block, random)
    curves = fitted.refit(resampled)
    above, unsure = level(fitted.times, left, last, ANCHOR)
    now = expected[-1] + above + unsure * random.standard_t(ANCHOR_FREEDOM, draws)
    late_noise = np.sqrt(np.mean(spread[-max(3, len(left) // 5) :] ** 2))
    off = trust.spread + _misfit(fitted, above, unsure)
    errors = off * random.standard_t(trust.freedom, draws)
    grown = np.log2(ahead / (last + fitted.origin)) ** GROWTH
    futures = []
    for draw in range(draws):
        curve = curves.one(draw)
        at_last = curve.at(np.array([last]))[0, 0]
        falls = at_last - curve.at(ahead - fitted.origin)[0]
        path = now[draw] - (USUAL_FALL + errors[draw] * grown) * falls
        path += late_noise * _blocks(pure, 1, len(ahead), block, random)[0]
        means = trailing_mean(np.append(before, path), window)
        is_below = means <= target
        reached = ahead[np.argmax(is_below)] if is_below.any() else np.inf
        falls_at_most = at_last - curve.asymptotes[0]
        asymptote = now[draw] - (USUAL_FALL + errors[draw]) * falls_at_most
        futures.append((reached, means.min(), asymptote))
    return futures


def _misfit(fitted: Fitted, above: float, unsure: float) -> float:
    """Return by how much a form misses the end of the log, in parts of its fall until twice that.

    Only what exceeds the noise counts. A form that runs past the end says little of what follows.
    """
    ends = fitted.times[-1] + np.array([0.0, fitted.times[-1] + fitted.origin])
    foretold = max(float(-np.diff(fitted.curves.at(ends)[0])[0]), TINY)
    return min(LARGEST, float(np.sqrt(max(0.0, above**2 - unsure**2))) / foretold)


def _pure_noise(left: Floats) -> Floats:
    """Return what is left of a fit without what it systematically misses."""
    width = max(3, len(left) // 8)
    if len(left) < 2 * FEWEST_TO_SMOOTH:
        return left - left.mean()
    return (left - moving_mean(left, width)) / np.sqrt(1 - 1 / width)


FEWEST_TO_SMOOTH = 8


def _blocks(
    values: Floats, draws: int, count: int, block: int, random: np.random.Generator
) -> Floats:
    """Return *values* resampled in blocks, of shape (draws, count)."""
    starts = random.integers(0, len(values) - block + 1, (draws, -(-count // block)))
    rows = starts[:, :, None] + np.arange(block)
    return values[rows.reshape(draws, -1)[:, :count]]
