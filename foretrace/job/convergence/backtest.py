"""How far a form can be trusted: it is fitted to a first part and judged on what came after.

In: times since the beginning and losses of a log. Out: `Trust` per form.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foretrace.job.convergence.curves import FORMS, Curves, fit_form
from foretrace.job.convergence.statistics import TINY, bins, in_bins, level, weights

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Rows = npt.NDArray[np.intp]

LEAVE_OUT = 0.3
"""Part of the log that no form is fitted to: the first steps follow other laws."""
FEWEST = 8
"""Rows that a form is fitted to."""
TAILS = ((0.5, 1.0), (0.71, 1.0), (0.35, 0.7))
"""Forms are fitted until the first and judged on the loss at the second, in parts of the log."""
CLOSE = 1.5
"""Forms whose score is within this factor of the best are not told apart."""
USUAL_FALL, USUAL_ERROR, USUAL_FREEDOM = 1.15, 0.35, 3.0
"""A loss falls by 1.15 times what a form says, give or take 0.35 times; the log's own tails are
weighed against that as if it came from three of them. Chosen on runs that docs/accuracy-job.md
names, and judged on others."""
LARGEST = 2.0
NOISY = 0.3
"""A tail whose fall is known no better than to this part of itself counts half."""


@dataclass(frozen=True)
class Fitted:
    """A form fitted to the last part of a log.

    ``times`` begin at ``origin``; they and ``losses`` are the rows it was fitted to, in bins that
    begin at ``starts`` and weigh ``weights``.
    """

    curves: Curves
    origin: float
    times: Floats
    losses: Floats
    starts: Rows
    weights: Floats

    def at(self, times: Floats) -> Floats:
        """Return the fitted losses at times since the beginning of the log."""
        return self.curves.at(times - self.origin)[0]

    def refit(self, losses: Floats) -> Curves:
        """Return the same form fitted to other losses of the same rows, shape (draws, rows)."""
        return _fit(self.curves.form, self.times, losses, self.starts, self.weights)


class Trust(NamedTuple):
    """How well a form foretold the tails: a score, and what it says about the next error.

    What the loss will fall by, in parts of what the form says, has a Student distribution around
    `USUAL_FALL` with this ``spread`` and ``freedom``.
    """

    score: float
    spread: float
    freedom: float


def fit_last(form: str, times: Floats, losses: Floats) -> Fitted | None:
    """Fit *form* to the last part of the rows, or to all where these are few; None where too few.

    >>> times = np.arange(1.0, 101)
    >>> fitted = fit_last("exponential", times, 1 + np.exp(-times / 40))
    >>> round(float(fitted.at(np.array([200.0]))[0]), 3)
    1.008
    """
    origin = LEAVE_OUT * times[-1]
    if (times > origin).sum() < FEWEST:
        origin = 0.0
    later = times > origin
    if later.sum() < FEWEST:
        return None
    own, rows = times[later] - origin, losses[later]
    starts = bins(own)
    weighed = weights(own, rows, starts)
    return Fitted(_fit(form, own, rows, starts, weighed), origin, own, rows, starts, weighed)


def trust(times: Floats, losses: Floats) -> dict[str, Trust]:
    """Return how far each form can be trusted, the best first."""
    trusts = {form: _trust(form, times, losses) for form in FORMS}
    return dict(sorted(trusts.items(), key=lambda item: item[1].score))


def select_contenders(trusted: dict[str, Trust]) -> list[str]:
    """Return the forms that the tails do not tell from the best."""
    best = min(one.score for one in trusted.values())
    return [form for form, one in trusted.items() if one.score <= CLOSE * best]


def _trust(form: str, times: Floats, losses: Floats) -> Trust:
    tails = [_tail(form, times, losses, *tail) for tail in TAILS]
    judged = [tail for tail in tails if tail is not None]
    shares = [1 / (1 + (unsure / NOISY) ** 2) for _, unsure in judged]
    squares = [error**2 for error, _ in judged]
    beyond_noise = [max(0.0, error**2 - unsure**2) for error, unsure in judged]
    freedom = USUAL_FREEDOM + sum(shares)
    usual = USUAL_FREEDOM * USUAL_ERROR**2
    return Trust(
        (np.dot(shares, squares) + 0.05) / (sum(shares) + 0.5),
        float(np.sqrt((usual + np.dot(shares, beyond_noise)) / freedom)),
        freedom,
    )


def _tail(
    form: str, times: Floats, losses: Floats, begin: float, end: float
) -> tuple[float, float] | None:
    """Return by which part of the foretold fall the real one was off, and how unsure that is."""
    ends = np.array([begin, end]) * times[-1]
    is_first = times <= ends[0] * (1 + 1e-9)
    if not is_first.any():
        return None
    if (fitted := fit_last(form, times[is_first], losses[is_first])) is None:
        return None
    foretold = float(-np.diff(fitted.at(ends))[0])
    (above, error_above), (below, error_below) = (level(times, losses, at, 0.15) for at in ends)
    unsure = max(float(np.hypot(error_above, error_below)), TINY)
    least = max(foretold, unsure)
    error = (above - below - USUAL_FALL * foretold) / least
    return float(np.clip(error, -LARGEST, LARGEST)), unsure / least


def _fit(form: str, times: Floats, losses: Floats, starts: Rows, weighed: Floats) -> Curves:
    return fit_form(form, in_bins(times, starts), in_bins(losses, starts), weighed)
