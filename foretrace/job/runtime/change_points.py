"""Where the pace of a job changes: the end of its start-up, and any later change.

In: seconds per step. Out: numbers of steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

CRITICAL = 40.1
"""Quantile of the statistic of `pace_change` for a pace that does not change: a false alarm in 5 %
of series (Shao and Zhang, Testing for change points in time series, JASA 105, 2010)."""
TINY = 1e-9
"""Relative to the spread of the steps: rounding."""
SHORTEST = 0.1
"""Share of the steps that lie on either side of a change at least; fewer are odd steps."""


@dataclass(frozen=True)
class PaceChange:
    """From step ``at`` on, counted from 0, steps take ``after`` instead of ``before`` seconds."""

    at: int
    before: float
    after: float


def startup_steps(seconds: Floats, skip: int, within: float) -> int:
    """Return how many steps at the beginning are none of the pace that follows.

    Three rules: *skip* steps by what the user says; then each that lies outside the range of all
    *n* later ones, which happens by chance to 2 in ``n + 1``; then what lies before a change in the
    first half that makes the job faster by more than *within*: one that becomes slower does not
    warm up.

    >>> startup_steps(np.array([9.0, 3.0, 0.5] + [1.0, 1.1, 1.05, 1.08] * 5), 1, 0.05)
    3
    """
    count = skip + _apart(seconds[skip:])
    steady = seconds[count:]
    change = pace_change(steady)
    if change is None or change.at > len(steady) / 2:
        return count
    return count + (change.at if change.before > (1 + within) * change.after else 0)


def _apart(seconds: Floats) -> int:
    """Return how many of the first values each lie outside the range of all later ones.

    It is at most half of them: values that never settle are no start.

    >>> _apart(np.array([9.0, 0.5, 1.0, 2.0, 1.5, 1.0])), _apart(np.array([4.0, 3.0, 2.0, 1.0]))
    (2, 2)
    """
    if len(seconds) < 3:  # noqa: PLR2004 - a value, and a range of later ones
        return 0
    highest = np.maximum.accumulate(seconds[::-1])[-2::-1]
    lowest = np.minimum.accumulate(seconds[::-1])[-2::-1]
    is_apart = (seconds[:-1] > highest) | (seconds[:-1] < lowest)
    return int(np.argmin([*is_apart[: len(seconds) // 2], False]))


def pace_change(seconds: Floats) -> PaceChange | None:
    """Return where the mean changes, if it does.

    The largest of the contrasts of means before and after any step, each over what the two parts
    show of their own wandering: "self-normalised", so nothing has to be assumed of how alike
    neighbouring steps are.

    Examples
    --------
    >>> pace_change(np.array([1.0, 1.1, 0.9, 1.0, 1.1, 0.9, 2.0, 2.1, 1.9, 2.0, 2.1, 1.9]))
    PaceChange(at=6, before=1.0, after=2.0)
    """
    ends = max(2, math.ceil(SHORTEST * len(seconds)))
    if len(seconds) < 2 * ends or (spread := seconds.std()) <= TINY * seconds.mean():
        return None
    scaled = (seconds - seconds.mean()) / spread
    contrasts = np.cumsum(scaled)[:-1] ** 2 * len(seconds)
    wandering = _wandering(scaled) + _wandering(scaled[::-1])[::-1]
    statistic = (contrasts / np.maximum(wandering, TINY))[ends - 1 : len(seconds) - ends]
    largest = int(statistic.argmax())
    if statistic[largest] <= CRITICAL or largest in (0, len(statistic) - 1):
        return None
    at = largest + ends
    return PaceChange(at, float(seconds[:at].mean()), float(seconds[at:].mean()))


def _wandering(scaled: Floats) -> Floats:
    """Return for each k < n the sum of squares of the first k partial sums about their own line."""
    sums, count = np.cumsum(scaled)[:-1], np.arange(1.0, len(scaled))
    slope = sums / count
    squares, products = np.cumsum(sums**2), np.cumsum(count * sums)
    squares_left: Floats = squares - 2 * slope * products + slope**2 * np.cumsum(count**2)
    return squares_left
