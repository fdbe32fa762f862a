"""How long a training still takes whose batch size changes: epochs so far in, seconds out.

A regime is a run of epochs with one batch size. Which regimes are still to come is given (a
schedule), bounded (sizes only rise) or open; what an epoch of each costs is known beforehand, seen
in the epochs so far, or both.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from foretrace.analysis.evidence.evidence import UNVALIDATED, VALIDATED
from foretrace.errors import RefusedError
from foretrace.job.answer import Answer
from foretrace.job.batch_schedule.baselines import dirichlet_remaining, naive_remaining
from foretrace.job.batch_schedule.epoch_costs import EpochCost, learn_costs

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

LEVEL = 0.9
DRAWS, SAMPLES, SEED = 16_000, 4000, 0
EVEN, OPEN = 2.0, 1.0
"""Parameters of the prior over how a job splits into regimes. At 1 every split is equally likely,
which the interval rests on; at 2 regimes are rather of one length, as published schedules are."""
MOST_DOUBT = 0.2
"""Forecasts from costs in more doubt were not tested, or missed too often."""
PACE = 0.015
"""Standard deviation of a machine's pace between one minute and another, as a share (prior)."""


@dataclass(frozen=True)
class TrainingSoFar:
    """A training as far as it got.

    ``sizes`` are the batch sizes of the epochs so far and ``seconds`` what the finished ones took:
    as many, or one less while the last is running. ``epochs`` are those of the whole job, ``costs``
    what an epoch of each batch size takes as far as known beforehand. ``schedule`` is the batch
    size of every epoch, where it is fixed; ``rising`` says that the size never falls.
    """

    sizes: tuple[int, ...]
    seconds: tuple[float, ...]
    epochs: int
    costs: Mapping[int, EpochCost] = field(default_factory=dict)
    schedule: tuple[int, ...] | None = None
    rising: bool = False

    def __post_init__(self) -> None:
        """Refuse what contradicts itself."""
        if not self.sizes or len(self.sizes) - len(self.seconds) not in (0, 1):
            raise RefusedError("give the batch size of at least one epoch, running or finished")
        if len(self.seconds) >= self.epochs:
            raise RefusedError(f"all {self.epochs} epochs are over: nothing is left to predict")
        if self.rising and list(self.sizes) != sorted(self.sizes):
            raise RefusedError("the batch size fell, so it does not only rise")
        for epoch, (was, planned) in enumerate(zip(self.sizes, self.schedule or (), strict=False)):
            if was != planned:
                raise RefusedError(
                    f"epoch {epoch + 1} ran with {was} samples, the schedule says {planned}"
                )
        if self.schedule is not None and len(self.schedule) != self.epochs:
            raise RefusedError(f"the schedule has {len(self.schedule)} epochs, not {self.epochs}")

    @property
    def modes(self) -> tuple[int, ...]:
        """Every batch size that was used or may be: those planned, else those with a known cost."""
        to_come = self.costs if self.schedule is None else self.schedule
        return tuple(sorted({*self.sizes, *to_come}))

    @property
    def left(self) -> int:
        """Epochs that are not finished."""
        return self.epochs - len(self.seconds)


@dataclass(frozen=True)
class RegimeForecast:
    """What is left of a training, by us and by two published rules; times in seconds.

    ``seconds`` are those of an epoch of each batch size, ``left`` the epochs expected of each.
    """

    total: Answer
    remaining: Answer
    elapsed: float
    naive_total: float
    dirichlet_total: float
    seconds: Mapping[int, EpochCost]
    left: Mapping[int, float]


def forecast_regimes(training: TrainingSoFar) -> RegimeForecast:
    """Forecast the time of the whole *training*.

    Raises
    ------
    RefusedError
        A batch size to come has no cost, the costs do not fit what was seen, or the pace drifts.
    """
    costs = learn_costs(training.sizes, training.seconds, training.costs, training.modes)
    random = np.random.default_rng(SEED)
    counts = _counts(training, EVEN, random).mean(axis=0)
    samples = _seconds(_counts(training, OPEN, random), list(costs.values()), random)
    means = {size: cost.seconds for size, cost in costs.items()}
    expected = float(counts @ np.array(list(means.values())))
    elapsed = float(sum(training.seconds))
    low, high = np.quantile(samples, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]).tolist()
    status = _status(training, costs)
    remaining = Answer(expected, min(low, expected), max(high, expected), "s", LEVEL, status)
    last = training.seconds[-1] if training.seconds else means[training.sizes[0]]
    rule = dirichlet_remaining(_with_running(training), training.epochs, means)
    return RegimeForecast(
        total=_later(remaining, elapsed),
        remaining=remaining,
        elapsed=elapsed,
        naive_total=elapsed + naive_remaining(last, training.left),
        dirichlet_total=elapsed + rule,
        seconds=costs,
        left=dict(zip(costs, counts.tolist(), strict=True)),
    )


def _status(training: TrainingSoFar, costs: Mapping[int, EpochCost]) -> str:
    """Tell whether real trainings have tested such a forecast (docs/accuracy-job.md)."""
    to_come = (training.schedule or ())[len(training.seconds) :]
    is_tested = bool(to_come) and max(costs[size].doubt for size in to_come) <= MOST_DOUBT
    return VALIDATED if is_tested else UNVALIDATED


def _later(answer: Answer, seconds: float) -> Answer:
    value, low, high = (seconds + end for end in (answer.value, answer.low, answer.high))
    return replace(answer, value=value, low=low, high=high)


def _with_running(training: TrainingSoFar) -> tuple[int, ...]:
    """Return the sizes up to the running epoch, which is taken to go on like the last one."""
    running = len(training.seconds) + 1
    sizes = training.schedule or (*training.sizes, training.sizes[-1])
    return sizes[:running]


def _counts(training: TrainingSoFar, evenness: float, random: np.random.Generator) -> Floats:
    """Return samples of how many epochs are left of each mode: one row each, real numbers."""
    modes, left = np.array(training.modes), training.left
    if training.schedule is not None:
        planned = np.array(training.schedule[training.epochs - left :])
        return np.tile((planned[:, None] == modes).sum(axis=0).astype(float), (SAMPLES, 1))
    running = len(training.sizes) - len(training.seconds)
    splits = _splits(training, left - running, evenness, random)
    return running * (modes == training.sizes[-1]) + (left - running) * splits


def _splits(
    training: TrainingSoFar, left: int, evenness: float, random: np.random.Generator
) -> Floats:
    """Return samples of how the epochs *left* split among the modes; a row adds up to 1.

    The shares of the whole job follow a Dirichlet distribution; what is over stays what it was.
    So the share of the regime that runs is drawn from those that are at least what it has, by
    drawing what is left of it and weighing the draws.
    """
    now = np.array(training.modes) == training.sizes[-1]
    weights = _weights(training, left, evenness)
    drawn = np.zeros((DRAWS, len(now)))
    drawn[:, weights > 0] = random.dirichlet(weights[weights > 0], DRAWS)
    share = (_age(training) + left * drawn[:, now].ravel()) / training.epochs
    likely = share ** (evenness - 1)
    return drawn[random.choice(DRAWS, SAMPLES, p=likely / likely.sum())]


def _weights(training: TrainingSoFar, left: int, evenness: float) -> Floats:
    """Return the parameters of the Dirichlet distribution that splits the epochs *left*.

    Sizes that were left may return where nothing forbids it: together they weigh as much as
    changes so far were returns, and the less, the older the regime that runs is beside what is
    left.
    """
    modes = np.array(training.modes)
    now = modes == training.sizes[-1]
    over = np.isin(modes, training.sizes) & ~now
    to_come = ~over & ~now & ((modes > training.sizes[-1]) | (not training.rising))
    returning = _share_of_returns(training.sizes) * left / (left + _age(training))
    returning = 0.0 if training.rising else returning / max(over.sum(), 1)
    return now + evenness * to_come + returning * over


def _age(training: TrainingSoFar) -> int:
    """Return how many epochs the regime that runs has had."""
    return len(list(next(regime for _size, regime in groupby(reversed(training.sizes)))))


def _share_of_returns(sizes: tuple[int, ...]) -> float:
    """Return how many changes go back to an earlier size: half of them before any was seen.

    >>> _share_of_returns((32, 32)), _share_of_returns((32, 64)), _share_of_returns((32, 64, 32))
    (0.5, 0.25, 0.5)
    """
    began = [size for size, _ in groupby(sizes)]
    changes, returns = len(began) - 1, len(began) - len(set(began))
    return (returns + 0.5) / (changes + 1)


def _seconds(counts: Floats, costs: list[EpochCost], random: np.random.Generator) -> Floats:
    """Return samples of the remaining time: doubt about costs and pace, and noise of epochs.

    Where noise is larger than what is left, none is below 0.
    """
    means, doubts, noise = (
        np.array([getattr(cost, name) for cost in costs]) for name in ("seconds", "doubt", "noise")
    )
    off = random.standard_normal(counts.shape)
    foreseen = np.array([cost.seen == 0 for cost in costs])
    off[:, foreseen] = random.standard_normal((len(counts), 1))  # one source errs one way
    each = means * np.exp(doubts * off)
    pace = np.exp(PACE * random.standard_normal(len(counts)))
    spread = np.sqrt(counts @ (means * noise) ** 2) * random.standard_normal(len(counts))
    return np.maximum((counts * each).sum(axis=1) * pace + spread, 0.0)
