"""Every point of a grid of cores and cache: its throughput, its price, and the cheapest good one.

In: a job, a machine and prices as numbers. Out: one row per point.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foretrace.errors import RefusedError
from foretrace.replay.job_answer import Answer
from foretrace.replay.job_resources import (
    Pace,
    Step,
    Storage,
    fixed_hits,
    pace,
    recent_hits,
    synergy,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from foretrace.replay.job_resources_file import Price

LEVEL = 0.9
DRAWS, SEED = 200, 0
MODEL_ERROR = 0.06
"""Relative error that 90 % of the measured cells stay within (docs/accuracy-job.md)."""


@dataclass(frozen=True)
class Job:
    """What is known about the job: times in seconds, one entry per repeat of a measurement.

    ``measured`` are steps with everything cached, by cores and workers.
    """

    compute: Sequence[float]
    prepare: Sequence[float]
    hand_over: float
    threads: float
    batch_size: int
    samples: int
    dataset_gb: float
    measured: Mapping[tuple[int, int], float]

    def step(self, compute: float, prepare: float) -> Step:
        """Return what a step costs with these times."""
        batch_bytes = self.dataset_gb * 1e9 / self.samples * self.batch_size
        return Step(compute, prepare, batch_bytes, self.hand_over, self.threads)


@dataclass(frozen=True)
class Machine:
    """What is known about the machine.

    ``cores`` do as much together as ``effective_cores`` that disturb each other in nothing.
    """

    cores: int
    effective_cores: float
    storage: Storage
    memory_gb_per_s: float

    def effective(self, cores: int) -> float:
        """Return how many effective cores *cores* of this machine are.

        >>> Machine(4, 2.5, Storage(1e8, 1e8), 10).effective(3)
        2.0
        """
        if self.cores == 1:
            return float(cores)
        return 1 + (cores - 1) * (self.effective_cores - 1) / (self.cores - 1)


@dataclass(frozen=True)
class Row:
    """A point of the grid.

    ``speed``, ``recent_speed`` (what was used last is cached) and ``synergy_speed`` are samples
    per second; ``limit`` is what sets the pace. ``price`` is per hour, ``epoch_price`` per epoch.
    """

    cores: int
    cache: float
    workers: int
    speed: Answer
    limit: str
    recent_speed: float
    synergy_speed: float
    epoch: Answer
    price: float | None
    epoch_price: float | None


def survey(
    job: Job,
    machine: Machine,
    *,
    cores: Iterable[int],
    cache: Iterable[float],
    workers: Sequence[int] | None = None,
    price: Price | None = None,
) -> list[Row]:
    """Return a row for each number of *cores* and each cached fraction, and number of *workers*.

    Without *workers* each point has as many as make it fastest, the fewest of equals.
    """
    rows = []
    fractions = list(cache)
    for count in cores:
        for fraction in fractions:
            tried = [_row(job, machine, count, fraction, w, price) for w in workers or ()]
            rows += tried or [_fastest(job, machine, count, fraction, price)]
    return rows


def _fastest(job: Job, machine: Machine, cores: int, fraction: float, price: Price | None) -> Row:
    means = job.step(_mean(job.compute), _mean(job.prepare))
    counts = range(2 * cores + 1)
    paces = [_pace(job, machine, means, cores, w, fixed_hits(fraction)).seconds for w in counts]
    best = next(w for w in counts if paces[w] <= min(paces) * (1 + 1e-9))
    return _row(job, machine, cores, fraction, best, price)


def _row(
    job: Job, machine: Machine, cores: int, fraction: float, workers: int, price: Price | None
) -> Row:
    means = job.step(_mean(job.compute), _mean(job.prepare))
    found = _pace(job, machine, means, cores, workers, fixed_hits(fraction))
    recent = _pace(job, machine, means, cores, workers, recent_hits(fraction))
    full = _pace(job, machine, means, cores, workers, 1.0)
    steps = job.samples / job.batch_size
    published = synergy(
        full.seconds * steps,
        dataset_gb=job.dataset_gb,
        fraction=fraction,
        memory_gb_per_s=machine.memory_gb_per_s,
        disk_mb_per_s=machine.storage.disk / 1e6,
    )
    low, high = _interval(job, machine, cores, workers, fraction, found.seconds)
    epoch = Answer(found.seconds * steps, low * steps, high * steps, "s", LEVEL)
    value, least, most = (job.batch_size / seconds for seconds in (found.seconds, high, low))
    hourly = None if price is None else _hourly(price, cores, fraction * job.dataset_gb)
    return Row(
        cores=cores,
        cache=fraction,
        workers=workers,
        speed=Answer(value, least, most, "samples/s", LEVEL),
        limit=found.limit,
        recent_speed=job.batch_size / recent.seconds,
        synergy_speed=job.samples / published.epoch,
        epoch=epoch,
        price=hourly,
        epoch_price=None if hourly is None else hourly * epoch.value / 3600,
    )


def _pace(job: Job, machine: Machine, step: Step, cores: int, workers: int, hits: float) -> Pace:
    return pace(
        step,
        machine.storage,
        workers=workers,
        hits=hits,
        cores=machine.effective(cores),
        measured=job.measured.get((cores, workers)),
    )


def _interval(
    job: Job, machine: Machine, cores: int, workers: int, fraction: float, seconds: float
) -> tuple[float, float]:
    """Return the range of the step: repeats of the measurements, joined with the model's error."""
    random = np.random.default_rng(SEED)
    drawn = [
        _pace(job, machine, job.step(*pair), cores, workers, fixed_hits(fraction)).seconds
        for pair in zip(
            _resampled(job.compute, random), _resampled(job.prepare, random), strict=True
        )
    ]
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]) / seconds
    below = float(np.hypot(max(1 - low, 0), MODEL_ERROR))
    above = float(np.hypot(max(high - 1, 0), MODEL_ERROR))
    return seconds * max(1 - below, 0.0), seconds * (1 + above)


def _resampled(times: Sequence[float], random: np.random.Generator) -> list[float]:
    picks = random.integers(0, len(times), (DRAWS, len(times)))
    return [float(mean) for mean in np.asarray(times)[picks].mean(axis=1)]


def _mean(times: Sequence[float]) -> float:
    return float(np.mean(times))


def _hourly(price: Price, cores: int, cache_gb: float) -> float:
    return price.core * cores + price.memory_gb * cache_gb + price.rest


def cheapest(rows: Sequence[Row], within: float) -> Row:
    """Return the cheapest of *rows* whose speed is at most a share *within* below the best.

    Cheapest per epoch where prices are known, else that with the fewest cores, then the smallest
    cache, then the fewest workers.

    Raises
    ------
    RefusedError
        *within* is no share from 0 to below 1.
    """
    if not 0 <= within < 1:
        raise RefusedError(f"within {within:.0%} of the best says nothing; give 0 to 99 %")
    best = max(row.speed.value for row in rows)
    good = [row for row in rows if row.speed.value >= (1 - within) * best]
    return min(good, key=lambda row: (row.epoch_price or 0, row.cores, row.cache, row.workers))
