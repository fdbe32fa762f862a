"""What a log says about the learning rate: since when it stands, and when it may change next.

In: steps and learning rates, and the schedule ahead where it is known. Out: the first row after the
last change, and the step of the next one.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foretrace.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

SAME = 1e-6
"""Learning rates that differ by less than this part are one."""
MOVING = 0.5
"""A rate that changed in this part of the last rows is still moving."""
LAST_ROWS = 12


class RateSchedule(NamedTuple):
    """``since`` is a row; ``next_change`` a step, infinite where none is known or to be expected.

    ``why`` says in words where the next change comes from.
    """

    since: int = 0
    next_change: float = math.inf
    why: str = ""


def schedule_of(
    steps: Floats,
    rates: Floats | None,
    ahead: Sequence[tuple[float, float]] = (),
    next_change: float | None = None,
) -> RateSchedule:
    """Return what is known of the schedule.

    Parameters
    ----------
    steps, rates
        Of the rows that have a loss; ``rates`` is None where the log does not say.
    ahead
        Steps still to come with their learning rates.
    next_change
        The step at which the user says that the rate changes next, infinite for never; None where
        nothing is said.

    Examples
    --------
    >>> steps = np.arange(1.0, 31)
    >>> schedule_of(steps, np.where(steps <= 20, 0.1, 0.01)).next_change
    40.0

    Raises
    ------
    RefusedError
        The rate changes all the time.
    """
    if rates is None:
        return RateSchedule(0, next_change or math.inf, "as given" if next_change else "")
    changes = 1 + np.flatnonzero(np.abs(np.diff(rates)) > SAME * np.maximum(rates[1:], rates[:-1]))
    _check_moving(steps, changes)
    since = int(changes[-1]) if len(changes) else 0
    if next_change is not None:
        return RateSchedule(since, next_change, "as given")
    for step, rate in ahead:
        if abs(rate - rates[-1]) > SAME * max(rate, rates[-1]):
            return RateSchedule(since, step, "says the log")
    if ahead:
        return RateSchedule(since)
    return RateSchedule(since, *_expected(steps, rates, changes))


def _check_moving(steps: Floats, changes: npt.NDArray[np.intp]) -> None:
    """Refuse a rate that never stands still: what it does next decides, and no form knows it."""
    rows = min(LAST_ROWS, len(steps) - 1)
    if rows and (changes >= len(steps) - rows).sum() > MOVING * rows:
        raise RefusedError(
            "the learning rate is still changing at the end of the log, and the loss will follow "
            "what it does next; ask again when it has stood still for a while"
        )


def _expected(steps: Floats, rates: Floats, changes: npt.NDArray[np.intp]) -> tuple[float, str]:
    """Return when a rate that fell before would fall again, if it does so at regular times."""
    fell = changes[rates[changes] < rates[changes - 1]]
    if not len(fell):
        return math.inf, ""
    last = steps[fell[-1] - 1]
    before = steps[fell[-2] - 1] if len(fell) > 1 else 0.0
    due = 2 * last - before
    if due < steps[-1]:
        return math.inf, ""
    return float(due), f"it fell after step {last:g}, {last - before:g} steps on it may again"
