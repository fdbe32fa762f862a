"""How long a training still takes whose batch size changes: epochs so far in, seconds out.

A regime is a run of epochs with one batch size. Which regimes are still to come is given (a
schedule), bounded (sizes only rise) or open; what an epoch of each costs is known beforehand, seen
in the epochs so far, or both.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import groupby, takewhile
from typing import TYPE_CHECKING

import numpy as np

from foretrace.errors import RefusedError
from foretrace.replay.job_answer import Answer
from foretrace.replay.job_regime_costs import Cost, learned
from foretrace.replay.job_regime_rules import dirichlet_remaining, naive_remaining

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

LEVEL = 0.9
SAMPLES, SEED = 4000, 0
PACE = 0.015
"""Standard deviation of a machine's pace between one minute and another, as a share (prior)."""


@dataclass(frozen=True)
class Training:
    """A training as far as it got.

    ``sizes`` are the batch sizes of the epochs so far and ``seconds`` what the finished ones took:
    as many, or one less while the last is running. ``epochs`` are those of the whole job, ``costs``
    what an epoch of each batch size takes as far as known beforehand. ``schedule`` is the batch
    size of every epoch, where it is fixed; ``rising`` says that the size never falls.
    """

    sizes: tuple[int, ...]
    seconds: tuple[float, ...]
    epochs: int
    costs: Mapping[int, Cost] = field(default_factory=dict)
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
        """Every batch size that was used, is planned, or has a known cost."""
        return tuple(sorted({*self.sizes, *(self.schedule or ()), *self.costs}))

    @property
    def left(self) -> int:
        """Epochs that are not finished."""
        return self.epochs - len(self.seconds)


@dataclass(frozen=True)
class Forecast:
    """What is left of a training, by us and by two published rules; times in seconds.

    ``seconds`` are those of an epoch of each batch size, ``left`` the epochs expected of each.
    """

    total: Answer
    remaining: Answer
    elapsed: float
    naive_total: float
    dirichlet_total: float
    seconds: Mapping[int, Cost]
    left: Mapping[int, float]


def forecast(training: Training) -> Forecast:
    """Forecast the time of the whole *training*.

    Raises
    ------
    RefusedError
        A batch size to come has no cost, the costs do not fit what was seen, or the pace drifts.
    """
    costs = learned(training.sizes, training.seconds, training.costs, training.modes)
    random = np.random.default_rng(SEED)
    counts = _counts(training, random)
    samples = _seconds(counts, list(costs.values()), random)
    means = {size: cost.seconds for size, cost in costs.items()}
    expected = float(counts.mean(axis=0) @ np.array(list(means.values())))
    elapsed = float(sum(training.seconds))
    low, high = np.quantile(samples, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]).tolist()
    remaining = Answer(expected, min(low, expected), max(high, expected), "s", LEVEL)
    last = training.seconds[-1] if training.seconds else means[training.sizes[0]]
    rule = dirichlet_remaining(_with_running(training), training.epochs, means)
    return Forecast(
        total=_later(remaining, elapsed),
        remaining=remaining,
        elapsed=elapsed,
        naive_total=elapsed + naive_remaining(last, training.left),
        dirichlet_total=elapsed + rule,
        seconds=costs,
        left=dict(zip(costs, counts.mean(axis=0).tolist(), strict=True)),
    )


def _later(answer: Answer, seconds: float) -> Answer:
    value, low, high = (seconds + end for end in (answer.value, answer.low, answer.high))
    return replace(answer, value=value, low=low, high=high)


def _with_running(training: Training) -> tuple[int, ...]:
    """Return the sizes up to the running epoch, which is taken to go on like the last one."""
    running = len(training.seconds) + 1
    known = training.schedule or (*training.sizes, training.sizes[-1])
    return known[:running]


def _counts(training: Training, random: np.random.Generator) -> Floats:
    """Return samples of how many epochs are left of each mode: one row each, real numbers."""
    modes, left = np.array(training.modes), training.left
    if training.schedule is not None:
        planned = np.array(training.schedule[training.epochs - left :])
        return np.tile((planned[:, None] == modes).sum(axis=0).astype(float), (SAMPLES, 1))
    running = len(training.sizes) - len(training.seconds)
    weights = _weights(training, left - running)
    split = np.zeros((SAMPLES, len(modes)))
    split[:, weights > 0] = random.dirichlet(weights[weights > 0], SAMPLES)
    return running * (modes == training.sizes[-1]) + (left - running) * split


def _weights(training: Training, left: int) -> Floats:
    """Return the parameters of the Dirichlet distribution that splits the epochs *left*.

    The regime that runs and each batch size still to come weigh the same: every split of the
    future among them is equally likely, and regimes that are over stay what they were. Sizes that
    were left may return where nothing forbids it: together they weigh as much as changes so far
    were returns, and the less, the older the regime that runs is beside what is left.
    """
    modes, now = np.array(training.modes), training.sizes[-1]
    if training.rising:
        return (modes >= now).astype(float)
    was_left = np.isin(modes, training.sizes) & (modes != now)
    age = len(list(takewhile(lambda size: size == now, reversed(training.sizes))))
    returning = _share_of_returns(training.sizes) * left / (left + age)
    return np.where(was_left, returning / max(was_left.sum(), 1), 1.0)


def _share_of_returns(sizes: tuple[int, ...]) -> float:
    """Return how many changes go back to an earlier size: half of them before any was seen.

    >>> _share_of_returns((32, 32)), _share_of_returns((32, 64)), _share_of_returns((32, 64, 32))
    (0.5, 0.25, 0.5)
    """
    began = [size for size, _ in groupby(sizes)]
    changes, returns = len(began) - 1, len(began) - len(set(began))
    return (returns + 0.5) / (changes + 1)


def _seconds(counts: Floats, costs: list[Cost], random: np.random.Generator) -> Floats:
    """Return samples of the remaining time: doubt about costs and pace, and noise of epochs."""
    means, doubts, noise = (
        np.array([getattr(cost, name) for cost in costs]) for name in ("seconds", "doubt", "noise")
    )
    each = means * np.exp(doubts * random.standard_normal(counts.shape))
    pace = np.exp(PACE * random.standard_normal(len(counts)))
    spread = np.sqrt(counts @ (means * noise) ** 2) * random.standard_normal(len(counts))
    return (counts * each).sum(axis=1) * pace + spread
