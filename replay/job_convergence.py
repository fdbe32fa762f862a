"""At which step a training reaches a loss, with an interval, or why that cannot be said.

In: a log of losses (see `job_loss_log`) and a target. Out: `Convergence`.

The step asked for is exact: the first at which the mean of the last ``window`` logged losses is at
or below the target. Forms of the loss are fitted to what is known and judged on its tail
(`job_loss_tail`); futures are drawn from resampled logs, with the error that the forms made on
tails and the noise of the log (`job_loss_draws`). Where more than half of what the level leaves out
never reaches the target, there is no upper bound, and the answer is refused.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foretrace.errors import RefusedError
from foretrace.replay.job_answer import UNVALIDATED, VALIDATED, Answer
from foretrace.replay.job_loss_draws import draw_futures
from foretrace.replay.job_loss_forms import fit_form
from foretrace.replay.job_loss_rows import falls, trailing_mean
from foretrace.replay.job_loss_schedule import schedule_of
from foretrace.replay.job_loss_tail import LEAVE_OUT, fit_last, not_told_apart, trust

if TYPE_CHECKING:
    import numpy.typing as npt

    from foretrace.replay.job_loss_draws import Futures
    from foretrace.replay.job_loss_log import LossLog
    from foretrace.replay.job_loss_schedule import Schedule
    from foretrace.replay.job_loss_tail import Trust

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


def steps_to_loss(
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
    since = schedule.since
    steps, losses, grouped = _grouped(log.steps[since:], log.losses[since:])
    _check_length(steps, schedule, log)
    rows = _window(window, len(steps), grouped)
    means = trailing_mean(losses, rows)
    if means.min() <= target:
        reached = float(steps[rows - 1 + int(np.argmax(means <= target))])
        answer = Answer(reached, reached, reached, "steps", level, VALIDATED)
        again = (f"the mean has risen since, to {means[-1]:.4g}",) if means[-1] > target else ()
        return Convergence(answer, float(steps[0]), rows * grouped, reached=True, warnings=again)
    origin = float(steps[0] - np.median(np.diff(steps)))
    times = steps - origin
    trusted = trust(times, losses)
    futures = draw_futures(
        times,
        losses,
        trusted,
        target,
        window=rows,
        horizon=HORIZON * times[-1],
        draws=draws,
        random=np.random.default_rng(seed),
    )
    bounds = _bounds(futures, level) + origin
    if not math.isfinite(bounds[2]):
        raise RefusedError(_no_bound(target, level, times, losses, futures, bounds[0]))
    _check_schedule(schedule, bounds)
    is_checked = bounds[1] - origin <= CHECKED * times[-1] and level == LEVEL
    return Convergence(
        Answer(
            bounds[1],
            bounds[0],
            bounds[2],
            "steps",
            level,
            VALIDATED if is_checked else UNVALIDATED,
        ),
        float(steps[0]),
        rows * grouped,
        reached=False,
        forms=_forms(log, times, losses, trusted, target, origin),
        warnings=(f"{grouped} losses at a time were averaged",) if grouped > 1 else (),
    )


def _grouped(steps: Floats, losses: Floats) -> tuple[Floats, Floats, int]:
    """Return the rows, those of a long log averaged in groups that end at the steps returned."""
    each = -(-len(steps) // MOST_ROWS)
    if each <= 1:
        return steps, losses, 1
    kept = len(steps) // each * each
    means = losses[-kept:].reshape(-1, each).mean(axis=1)
    return steps[-kept:][each - 1 :: each], means, each


def _check_length(steps: Floats, schedule: Schedule, log: LossLog) -> None:
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
    found = max(1, round(asked / grouped))
    if found > rows // 2:
        raise RefusedError(
            f"a mean of {asked} losses is too much for a log with {rows * grouped}; take fewer"
        )
    return found


def _bounds(futures: Futures, level: float) -> Floats:
    """Return low, middle and high of when the target is reached."""
    shares = [(1 - level) / 2, 0.5, (1 + level) / 2]
    return np.quantile(futures.reached, shares, method="inverted_cdf")


def _no_bound(
    target: float, level: float, times: Floats, losses: Floats, futures: Futures, low: float
) -> str:
    """Say why the target may never be reached, and which could be asked for."""
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


def _check_schedule(schedule: Schedule, bounds: Floats) -> None:
    if bounds[2] > schedule.next_change:
        raise RefusedError(
            f"with the learning rate as it is, the target is reached at step {bounds[0]:,.0f} to "
            f"{bounds[2]:,.0f}, but the rate may change at step {schedule.next_change:,.0f} "
            f"({schedule.why}); give the schedule, or log until then"
        )


def _forms(
    log: LossLog,
    times: Floats,
    losses: Floats,
    trusted: dict[str, Trust],
    target: float,
    origin: float,
) -> tuple[FormRow, ...]:
    counting, horizon = not_told_apart(trusted), 1e6 * times[-1]
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
