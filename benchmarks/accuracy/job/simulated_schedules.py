"""Forecasts of simulated trainings whose batch sizes follow published rules, or chance.

Section of docs/accuracy-job.md. Costs of an epoch are known exactly: what is judged is what the
forecast makes of a future that nobody told it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from benchmarks.accuracy.markdown import table
from foretrace.job.batch_schedule.epoch_costs import EpochCost
from foretrace.job.batch_schedule.forecast import TrainingSoFar, forecast_regimes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

Schedule = tuple[int, ...]
PROGRESS = (0.1, 0.25, 0.5, 0.75)
SEED = 1
FASTER = 0.35
"""An epoch with c times as large batches takes c to this power less time."""
WINDOWS = (
    (64, 256, (range(10), range(150, 160), range(250, 260))),
    (32, 128, tuple(range(start, start + 10) for start in range(0, 600, 30))),
    (20, 80, (range(10),)),
    (1024, 8192, (range(30), range(60, 70), range(80, 90))),
)
"""Smallest and largest batch, and the epochs in which Accordion keeps the smallest."""
DOUBLINGS = (
    (31, 41, 51, 71), (21, 31, 51), (11, 31), (21, 31, 91, 111), (11, 21, 41), (21, 41),
    (11, 21, 81, 91), (21, 31, 61), (11, 61), (101, 111), (131, 221), (11, 41), (31, 51, 61, 71),
)  # fmt: skip
"""Epochs at which the gradient noise scale has the batch doubled."""
TEXT = f"""\
Simulated: the forecast knows which batch sizes there are, what an epoch of each takes, and \
nothing of the schedule.
Accordion keeps a small batch for 30 % of the job and in windows of critical epochs; by the \
gradient noise scale (GNS) it doubles at some epochs; where and when is as in the code of \
Shockwave, for jobs of several lengths.
"By chance" splits 50 epochs among three rising sizes, every split being equally likely.
An epoch with a batch four times as large takes {1 - 4**-FASTER:.0%} less time.
That regimes are taken to be rather of one length was chosen on such schedules.
Errors are means of the total time; `held` is the share of intervals of level 90 % that hold it.
"""


class RuleTrial(NamedTuple):
    """Relative errors of the total by us, by Shockwave and by the last epoch, and if ours held."""

    ours: float
    shockwave: float
    naive: float
    held: bool


def schedules_section(_recorded: Path) -> list[str]:
    """Return the section of the page."""
    heads = ("schedules", "progress", "this forecast", "held", "Shockwave's rule", "last epoch")
    lines = [
        _row(name, at, [try_rules(schedule, at) for schedule in each])
        for name, each in families().items()
        for at in PROGRESS
    ]
    return ["## Batch sizes by rules that nobody knows beforehand", "", TEXT, *table(heads, lines)]


def families() -> dict[str, list[Schedule]]:
    """Return schedules by what makes them."""
    random = np.random.default_rng(SEED)
    return {
        "Accordion": [
            accordion(*rule, int(epochs))
            for rule in WINDOWS
            for epochs in random.integers(30, 300, 5)
        ],
        "GNS": [gns(at, int(at[-1] * more)) for at in DOUBLINGS for more in (1.2, 1.6, 2.5)],
        "by chance": [by_chance((16, 64, 256), 50, random) for _ in range(30)],
    }


def accordion(small: int, large: int, windows: Sequence[range], epochs: int) -> Schedule:
    """Return the batch size of every epoch: small early and in *windows*, else large.

    >>> accordion(1, 8, (range(5, 7),), 10)
    (1, 1, 1, 1, 8, 1, 1, 8, 8, 8)
    """
    early = 0.3 * epochs
    return tuple(
        small if epoch <= early or any(epoch in window for window in windows) else large
        for epoch in range(epochs)
    )


def gns(doublings: Sequence[int], epochs: int) -> Schedule:
    """Return the batch size of every epoch: 16, doubled at each of *doublings*.

    >>> gns((2, 3), 5)
    (16, 16, 32, 64, 64)
    """
    return tuple(16 * 2 ** sum(epoch >= at for at in doublings) for epoch in range(epochs))


def by_chance(sizes: Sequence[int], epochs: int, random: np.random.Generator) -> Schedule:
    """Return *epochs* split among *sizes*, every split being equally likely."""
    ends = np.rint(epochs * np.cumsum(random.dirichlet(np.ones(len(sizes))))).astype(int)
    return tuple(np.repeat(sizes, np.diff(ends, prepend=0)).tolist())


def try_rules(schedule: Schedule, at: float) -> RuleTrial:
    """Forecast a job after a share *at* of its epochs."""
    costs = {size: 10.0 * (size / min(schedule)) ** -FASTER for size in sorted(set(schedule))}
    seconds = tuple(costs[size] for size in schedule)
    done, truth = round(at * len(schedule)), sum(seconds)
    exact = {size: EpochCost(each, 0.0, 0.0) for size, each in costs.items()}
    forecast = forecast_regimes(
        TrainingSoFar(schedule[: done + 1], seconds[:done], len(schedule), exact)
    )
    totals = (forecast.total.value, forecast.dirichlet_total, forecast.naive_total)
    ours, shockwave, naive = (total / truth - 1 for total in totals)
    held = forecast.total.low - 1e-6 <= truth <= forecast.total.high + 1e-6
    return RuleTrial(ours, shockwave, naive, held)


def _row(name: str, at: float, trials: Sequence[RuleTrial]) -> list[str]:
    errors = np.abs([each[:3] for each in trials]).mean(axis=0)
    held = np.mean([each.held for each in trials])
    ours, shockwave, naive = (f"{error:.1%}" for error in errors)
    return [name, f"{at:.0%}", ours, f"{held:.0%}", shockwave, naive]
