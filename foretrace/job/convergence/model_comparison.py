"""What each form of a loss says alone, and two rules beside: Optimus' own fit and the last slope.

In: a log of losses and a target. Out: steps, for comparison with the forecast.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foretrace.job.convergence.backtest import fit_last, select_contenders
from foretrace.job.convergence.curves import fit_form
from foretrace.job.convergence.statistics import falls

if TYPE_CHECKING:
    import numpy.typing as npt

    from foretrace.job.convergence.backtest import Trust
    from foretrace.job.convergence.loss_log import LossLog

    Floats = npt.NDArray[np.float64]

SEGMENTS, SEGMENT_WEIGHT = 3, 16.0
"""Optimus fits in three parts of time, the standard deviation four times less in each."""


@dataclass(frozen=True)
class FormRow:
    """What one form says, for comparison.

    ``tail_error`` is by which factor its fall was off on the tails, as a spread of the logarithm;
    ``steps`` is infinite where it never reaches the target.
    """

    form: str
    tail_error: float | None
    asymptote: float | None
    steps: float
    counts: bool


def compare_forms(
    log: LossLog,
    times: Floats,
    losses: Floats,
    trusted: dict[str, Trust],
    target: float,
    origin: float,
) -> tuple[FormRow, ...]:
    """Return what each form says, the most trusted first, then Optimus' own fit and the last slope.

    *times* and *losses* are the rows of *log* that count; *origin* is the step before the first.
    """
    counting, horizon = select_contenders(trusted), 1e6 * times[-1]
    rows = []
    for form, judged in trusted.items():
        fitted = fit_last(form, times, losses)
        assert fitted is not None
        reached = fitted.curves.first_below(target, horizon) + fitted.origin + origin
        asymptote = float(fitted.curves.asymptotes[0])
        rows.append(FormRow(form, judged.spread, asymptote, reached, form in counting))
    last = last_slope(log.steps, log.losses, target)
    return (
        *rows,
        optimus_alone(log, target),
        FormRow("last slope", None, None, last, counts=False),
    )


def optimus_alone(log: LossLog, target: float) -> FormRow:
    """Return what Optimus' own fit says: one hyperbola through the whole log, with its weights.

    Source: Optimus (EuroSys 2018): later thirds of the log weigh more.
    """
    first = log.steps[0] - np.median(np.diff(log.steps))
    times = log.steps - first
    part = np.minimum(SEGMENTS - 1, SEGMENTS * np.arange(len(times)) // len(times))
    curve = fit_form("optimus", times, log.losses, SEGMENT_WEIGHT**part)
    reached = curve.first_below(target, 1e6 * times[-1]) + first
    asymptote = float(curve.asymptotes[0])
    return FormRow("Optimus' own fit", None, asymptote, float(reached), counts=False)


def last_slope(steps: Floats, losses: Floats, target: float) -> float:
    """Return when the straight line through the last third of the losses reaches *target*.

    >>> round(last_slope(np.arange(9.0), 9 - np.arange(9.0), target=-1))
    10
    """
    some = max(3, len(steps) // 3)
    times, late = steps[-some:], losses[-some:]
    slope, _ = falls(times, late)
    if slope >= 0:
        return math.inf
    return float(times.mean() + (target - late.mean()) / slope)
