"""At which step a training reaches a loss, with an interval, or why that cannot be said.

In: a log of losses (see `loss_log`) and a target. Out: `Convergence`.

The step asked for is exact: the first at which the mean of the last ``window`` logged losses is at
or below the target. Forms of the loss are fitted to what is known and judged on its tail
(`backtest`); futures are drawn from resampled logs, with the error that the forms made on
tails and the noise of the log (`bootstrap`). Where more than half of what the level leaves out
never reaches the target, there is no upper bound, and the answer is refused.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foretrace.analysis.evidence.evidence import UNVALIDATED, VALIDATED
from foretrace.errors import RefusedError
from foretrace.job.answer import Answer
from foretrace.job.convergence.backtest import LEAVE_OUT, trust
from foretrace.job.convergence.bootstrap import draw_futures
from foretrace.job.convergence.learning_rate import schedule_of
from foretrace.job.convergence.model_comparison import compare_forms
from foretrace.job.convergence.statistics import falls, trailing_mean

if TYPE_CHECKING:
    import numpy.typing as npt

    from foretrace.job.convergence.bootstrap import Futures
    from foretrace.job.convergence.learning_rate import RateSchedule
    from foretrace.job.convergence.loss_log import LossLog
    from foretrace.job.convergence.model_comparison import FormRow

    Floats = npt.NDArray[np.float64]

LEVEL = 0.9
DRAWS = 400
FEWEST_ROWS = 12
MOST_ROWS = 10_000
"""Longer logs are averaged over groups of rows."""
WINDOW = 0.05
"""Part of the rows over which the loss is averaged where nothing else is asked for."""
HORIZON = 5.0
"""How many times the known steps may be looked ahead."""
CHECKED = 2.0
"""How many times the known steps the study looked ahead, at the usual level."""


@dataclass(frozen=True)
class Convergence:
    """The step that reaches the target, and what the answer rests on.

    ``since`` is the first step that counts, ``window`` the logged losses in a mean, ``reached``
    whether the target was reached already; ``forms`` are the forms, Optimus' own fit and the last
    slope.
    """

    answer: Answer
    since: float
    window: int
    reached: bool
    forms: tuple[FormRow, ...] = ()
    warnings: tuple[str, ...] = ()


def forecast_steps_to_loss(
    log: LossLog,
    target: float,
    *,
    level: float = LEVEL,
    window: int | None = None,
    next_change: float | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> Convergence:
    """Return the step at which the mean of the last *window* losses reaches *target*.

    Parameters
    ----------
    log
        Steps, losses and, where known, learning rates.
    target
        A loss.
    level
        Share of all cases that the interval holds.
    window
        Logged losses in a mean; a twentieth of those that count where None.
    next_change
        The step at which the learning rate changes next, infinite for never, None for unknown.

    Raises
    ------
    RefusedError
        The log is too short, the loss no longer falls, the target is not surely reached, or the
        learning rate may change before it is.
    """
    if not math.isfinite(target):
        raise RefusedError(f"the target is {target}, expected a finite loss")
    schedule = schedule_of(log.steps, log.rates, log.ahead, next_change)
    counting = _select_rows(log, schedule, window)
    means = trailing_mean(counting.losses, counting.window)
    if means.min() <= target:
        return _read_off(counting, means, target, level)
    trusted = trust(counting.times, counting.losses)
    futures = draw_futures(
        counting.times,
        counting.losses,
        trusted,
        target,
        window=counting.window,
        horizon=HORIZON * counting.times[-1],
        draws=draws,
        random=np.random.default_rng(seed),
    )
    low, middle, high = _bounds(futures, level) + counting.origin
    if not math.isfinite(high):
        raise RefusedError(_no_bound(counting, target, level, futures, low))
    _check_schedule(schedule, low, high)
    is_checked = middle - counting.origin <= CHECKED * counting.times[-1] and level == LEVEL
    status = VALIDATED if is_checked else UNVALIDATED
    return Convergence(
        Answer(middle, low, high, "steps", level, status),
        counting.since,
        counting.window * counting.grouped,
        reached=False,
        forms=compare_forms(log, counting.times, counting.losses, trusted, target, counting.origin),
        warnings=counting.warnings,
    )


@dataclass(frozen=True)
class _CountingRows:
    """The rows that count: times are steps since ``origin``, each row a mean of ``grouped``."""

    times: Floats
    losses: Floats
    origin: float
    grouped: int
    window: int

    @property
    def since(self) -> float:
        """The first step that counts."""
        return float(self.origin + self.times[0])

    @property
    def warnings(self) -> tuple[str, ...]:
        """What was done to the log."""
        return (f"{self.grouped} losses at a time were averaged",) if self.grouped > 1 else ()


def _select_rows(log: LossLog, schedule: RateSchedule, window: int | None) -> _CountingRows:
    since = schedule.since
    steps, losses, grouped = _grouped(log.steps[since:], log.losses[since:])
    _check_length(steps, schedule, log)
    rows = _window(window, len(steps), grouped)
    origin = float(steps[0] - np.median(np.diff(steps)))
    return _CountingRows(steps - origin, losses, origin, grouped, rows)


def _read_off(counting: _CountingRows, means: Floats, target: float, level: float) -> Convergence:
    """Return when the log itself reached the target."""
    row = counting.window - 1 + int(np.argmax(means <= target))
    reached = float(counting.origin + counting.times[row])
    again = (f"the mean has risen since, to {means[-1]:.4g}",) if means[-1] > target else ()
    return Convergence(
        Answer(reached, reached, reached, "steps", level, VALIDATED),
        counting.since,
        counting.window * counting.grouped,
        reached=True,
        warnings=(*counting.warnings, *again),
    )


def _grouped(steps: Floats, losses: Floats) -> tuple[Floats, Floats, int]:
    """Return the rows, those of a long log averaged in groups that end at the steps returned."""
    each = -(-len(steps) // MOST_ROWS)
    if each <= 1:
        return steps, losses, 1
    kept = len(steps) // each * each
    means = losses[-kept:].reshape(-1, each).mean(axis=1)
    return steps[-kept:][each - 1 :: each], means, each


def _check_length(steps: Floats, schedule: RateSchedule, log: LossLog) -> None:
    if len(steps) < FEWEST_ROWS:
        since = f" since the learning rate changed at step {log.steps[schedule.since]:g}"
        raise RefusedError(
            f"{len(steps)} losses{since if schedule.since else ''} are too few; log at least "
            f"{FEWEST_ROWS}"
        )


def _window(asked: int | None, rows: int, grouped: int) -> int:
    """Return over how many rows the loss is averaged."""
    if asked is None:
        return max(1, round(WINDOW * rows))
    width = max(1, round(asked / grouped))
    if width > rows // 2:
        raise RefusedError(
            f"a mean of {asked} losses is too much for a log with {rows * grouped}; take fewer"
        )
    return width


def _bounds(futures: Futures, level: float) -> Floats:
    """Return low, middle and high of when the target is reached."""
    shares = [(1 - level) / 2, 0.5, (1 + level) / 2]
    return np.quantile(futures.reached, shares, method="inverted_cdf")


def _no_bound(
    counting: _CountingRows, target: float, level: float, futures: Futures, low: float
) -> str:
    """Say why the target may never be reached, and which could be asked for."""
    times, losses = counting.times, counting.losses
    late = times > LEAVE_OUT * times[-1]
    slope, error = falls(times[late], losses[late])
    if slope > 2 * error:
        return f"the loss rises: by {slope * times[late][-1]:.3g} over the steps known; look there"
    if slope >= -2 * error:
        return (
            f"the loss no longer falls measurably (by {-slope:.2g} ± {2 * error:.2g} a step); "
            f"nothing says when it gets to {target:g}"
        )
    answerable = np.quantile(futures.lowest, (1 + level) / 2)
    least = 0.0 if losses.min() >= 0 else -np.inf
    lower, upper = np.quantile(futures.asymptotes, [(1 - level) / 2, (1 + level) / 2]).clip(least)
    never = np.mean(~np.isfinite(futures.reached))
    low_end = "" if math.isinf(low) else f" (surely not before step {low:,.0f})"
    return (
        f"{target:g} is reached in only {1 - never:.0%} of the futures that fit the log{low_end}: "
        f"the loss may level off anywhere between {lower:.4g} and {upper:.4g}; "
        f"log more steps, or ask for {answerable:.4g} or above"
    )


def _check_schedule(schedule: RateSchedule, low: float, high: float) -> None:
    if high > schedule.next_change:
        raise RefusedError(
            f"with the learning rate as it is, the target is reached at step {low:,.0f} to "
            f"{high:,.0f}, but the rate may change at step {schedule.next_change:,.0f} "
            f"({schedule.why}); give the schedule, or log until then"
        )
