"""How long a job takes, from what some of its steps took: ``T = start-up + (n - n0) * mean``.

Seconds of the first steps of a job go in, in order; out comes the time of all its steps, with an
interval, or a reason to refuse. Four things keep the mean of a sample from being the pace of a job:

- the first steps build, allocate and tune (`startup_steps`);
- the pace may still be changing (`pace_change`);
- neighbouring steps are alike, so a sample says less than its size (`sampling_error`);
- a steady job wanders, more slowly than any sample shows (`WANDER`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from foretrace.analysis.evidence.evidence import UNVALIDATED, VALIDATED
from foretrace.errors import RefusedError
from foretrace.job.answer import Answer
from foretrace.job.runtime.change_points import pace_change, startup_steps
from foretrace.job.runtime.sampling_error import between_periods, relative_interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from foretrace.job.runtime.change_points import PaceChange

    Floats = npt.NDArray[np.float64]

FEWEST = 10
"""Steps after the start-up: two for each of the blocks whose means are compared."""
LEAST_S = 2.0
"""Seconds that a sample has to last: clocks, writes to disk, other processes and the episodes of a
simulator come and go in seconds, and a shorter sample has met none of them."""
WANDER = 0.0045
"""By which share, in 90 % of cases, the pace of a steady job differs from that of its first 50
steps, beyond what these show: taken from the 31 different steady series of the Chronus artifact
that are public here, and the only figure that was. ``docs/accuracy-job.md`` tries it on others."""
Z = 1.645
"""Half an interval of 90 %, in standard deviations."""
TESTED_STEPS, TESTED_S, TESTED_TIMES, TESTED_SPREAD = 40, 4.0, 10, 0.07
"""Steps and seconds of a sample, length of a job over that of its sample, and spread of its steps,
for which intervals were tested. Where steps spread by more, other things than their work set the
pace, such as other processes, or an environment; how these go on, no sample tells."""


@dataclass(frozen=True)
class Runtime:
    """What is known of the time of a job; times in seconds.

    ``total`` is the answer, ``step`` the time of a step once the job has its pace. The first
    ``startup`` steps took ``startup_s`` together, and the next ``sample`` were averaged. ``more``
    says how many further ones would make the interval as narrow as was asked: 0 where it is, and
    ``None`` where no number would. ``spread`` is the width of the middle half of the sample, over
    its median. ``drift`` is by how much the last samples differ from the mean of all, as a share of
    it, where a test says that they do: the interval knows nothing of what goes on moving.
    """

    total: Answer
    step: Answer
    startup: int
    startup_s: float
    sample: int
    more: int | None
    spread: float
    drift: float = 0.0

    def of_single_steps(self, stride: int) -> Runtime:
        """Return the same where each sample was *stride* steps."""
        return replace(
            self,
            step=self.step.scale(1 / stride, "s"),
            startup=self.startup * stride,
            sample=self.sample * stride,
            more=None if self.more is None else self.more * stride,
        )


def forecast_runtime(
    seconds: Sequence[float] | Floats,
    steps: float,
    *,
    skip: int = 1,
    sample: int | None = None,
    within: float = 0.05,
    lasts_s: float | None = None,
) -> Runtime:
    """Return how long *steps* steps take, of which *seconds* are the first.

    Parameters
    ----------
    seconds
        What each step took, from the first on.
    steps
        Steps of the whole job, those of the sample included.
    skip
        Steps that certainly belong to the start-up; more may be found.
    sample
        How many steps after these to take the mean of; the rest only shows whether the pace lasts.
        Default: all.
    within
        By which share of the total the user lets the answer be off.
    lasts_s
        Time over which the sample was taken, if other work lay in between.

    Raises
    ------
    RefusedError
        A value is no time, there are too few, they took too little time, or the pace is changing.

    Examples
    --------
    >>> runtime = forecast_runtime([5.0, *[0.1, 0.12] * 30], 1000)
    >>> round(runtime.total.value, 1), runtime.startup
    (114.9, 1)
    """
    every = np.asarray(seconds, np.float64)
    _check_values(every, steps, skip, sample, within)
    used = every if sample is None else every[: skip + sample]
    startup = startup_steps(used, skip, within)
    _check_pace(every[startup:], startup, within)
    if steps > len(used):
        _check_length(used, startup, lasts_s)
    return _answer(used, startup, steps, within)


def plain_product(seconds: Floats, steps: float) -> float:
    """Return ``n * mean``, as it is published.

    >>> round(plain_product(np.array([5.0, 0.1, 0.1]), 1000), 1)
    1733.3
    """
    return steps * float(seconds.mean())


def two_lengths(seconds: Floats, steps: float) -> float:
    """Return the total from what half the sample and the whole sample took.

    What the first half took beyond its share is start-up, and nothing has to be said of it.

    >>> round(two_lengths(np.array([5.0, 0.1, 0.1, 0.1]), 1000), 1)
    104.9
    """
    half = len(seconds) // 2
    short, long = float(seconds[:half].sum()), float(seconds.sum())
    return long + (steps - len(seconds)) * (long - short) / (len(seconds) - half)


def _check_values(
    seconds: Floats, steps: float, skip: int, sample: int | None, within: float
) -> None:
    if not 0 < steps < math.inf:
        raise RefusedError(f"a job of {steps} steps takes no time; give a number above 0")
    if not 0 < within < 1:
        raise RefusedError(f"to be within {within:.0%} of the total is no aim; give 0 to 100 %")
    wrong = np.flatnonzero(~(np.isfinite(seconds) & (seconds > 0)))
    if len(wrong):
        raise RefusedError(f"step {wrong[0] + 1} took {seconds[wrong[0]]} s, which is no time")
    needed = skip + FEWEST if sample is None else skip + sample
    if len(seconds) < min(needed, steps):
        lacks = math.ceil(min(needed, steps)) - len(seconds)
        raise RefusedError(f"{len(seconds)} samples are too few; take {lacks} more samples")


def _check_length(used: Floats, startup: int, lasts_s: float | None) -> None:
    """Refuse a sample that has seen too little of the job."""
    steady = used[startup:]
    if (lacks := FEWEST - len(steady)) > 0:
        raise RefusedError(
            f"{len(steady)} samples after a start-up of {startup} steps are too few; take "
            f"{lacks} more samples"
        )
    lasts = float(used.sum()) if lasts_s is None else lasts_s
    if lasts < LEAST_S:
        more = math.ceil((LEAST_S - lasts) / float(steady.mean()))
        raise RefusedError(
            f"{lasts:.2g} s of samples cannot show what comes and goes in seconds; take {more} "
            "more samples"
        )


def _check_pace(steady: Floats, startup: int, within: float) -> None:
    change = pace_change(steady)
    if change is None or abs(_drift(steady, change)) <= within:
        return
    raise RefusedError(
        f"the pace changes: steps took {change.before:.4g} s on average up to step "
        f"{startup + change.at}, and {change.after:.4g} s from there on; a mean of both says "
        "nothing of the steps to come, sample once the pace lasts"
    )


def _drift(steady: Floats, change: PaceChange | None) -> float:
    """Return by how much the steps after a change differ from the mean of all, as a share of it."""
    return 0.0 if change is None else change.after / float(steady.mean()) - 1


def _answer(sample: Floats, startup: int, steps: float, within: float) -> Runtime:
    steady, mean = sample[startup:], float(sample[startup:].mean())
    measured = _of_first(sample, steps)
    left = max(steps - len(sample), 0)
    total = measured + left * mean
    below, above = _off(steady, left)
    spread = _spread(steady) if left else 0.0
    drift = _drift(steady, pace_change(steady)) if left else 0.0
    is_tested = len(steady) >= TESTED_STEPS and steps <= TESTED_TIMES * len(sample)
    is_tested &= spread <= TESTED_SPREAD and float(steady.sum()) >= TESTED_S
    is_tested &= not drift
    status = VALIDATED if is_tested or not left else UNVALIDATED
    ends = (total - left * mean * min(below, 1.0), total + left * mean * above)
    return Runtime(
        total=Answer(total, *ends, "s", status=status),
        step=Answer(mean, mean * (1 - min(below, 1.0)), mean * (1 + above), "s", status=status),
        startup=startup,
        startup_s=float(sample[:startup].sum()),
        sample=len(steady),
        more=_more(steady, left, within * total / (left * mean)) if left else 0,
        spread=spread,
        drift=drift,
    )


def _of_first(sample: Floats, steps: float) -> float:
    """Return what the first *steps* of a sample took; of half a value, half.

    >>> _of_first(np.array([5.0, 1.0, 1.0]), 1.5), _of_first(np.array([5.0, 1.0]), 9)
    (5.5, 6.0)
    """
    return float(np.interp(steps, np.arange(len(sample) + 1), np.append(0.0, sample.cumsum())))


def _spread(steady: Floats) -> float:
    """Return how wide the middle half of the steps is, over their median.

    >>> round(_spread(np.array([1.0, 1.1, 1.2, 1.3, 9.0])), 3)
    0.167
    """
    low, median, high = np.quantile(steady, [0.25, 0.5, 0.75])
    return float((high - low) / median)


def _off(steady: Floats, left: float) -> tuple[float, float]:
    """Return by which shares the mean of the steps that are *left* may be below and above."""
    if not left:
        return 0.0, 0.0
    stays = math.hypot(Z * between_periods(steady), WANDER)
    low, high = (math.hypot(off, stays) for off in relative_interval(steady, left))
    return low, high


def _more(steady: Floats, left: float, within: float) -> int | None:
    """Return how many further steps bring the interval down to *within* of the steps to come.

    What a sample is off falls with the root of its size; what periods differ by stays.

    >>> wavering = np.tile([0.1, 0.2, 0.15, 0.12, 0.25, 0.1, 0.14], 3)
    >>> _more(wavering, 1000, 0.1), _more(wavering, 1000, 0.05), _more(wavering, 1000, 0.001)
    (0, 53, None)
    """
    if max(_off(steady, left)) <= within:
        return 0
    stays = math.hypot(Z * between_periods(steady), WANDER)
    if stays >= within:
        return None
    falls = max(relative_interval(steady, left))
    return math.ceil(len(steady) * (falls**2 / (within**2 - stays**2) - 1))
