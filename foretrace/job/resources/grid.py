"""Every point of a grid of cores and cache: its throughput, its price, and the cheapest good one.

In: a job, a machine and prices as numbers. Out: one row per point.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from foretrace.analysis.evidence.evidence import UNVALIDATED, VALIDATED
from foretrace.errors import RefusedError
from foretrace.job.answer import Answer
from foretrace.job.resources.throughput import (
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

    from foretrace.job.resources.file import Price

LEVEL = 0.9
DRAWS, SEED = 200, 0
ALIKE = 1 + 1e-9
LEAST = 0.05
"""No step is expected to take less than this share of its value."""
MODEL_ERROR = 0.05
"""Relative error that 90 % of the measured cells stay within (docs/accuracy-job.md)."""
TESTED_CORES, TESTED_WORKERS = 2, 2
"""What was measured goes so far; beyond it answers count as unvalidated."""


@dataclass(frozen=True)
class LoadingJob:
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
class LoadingMachine:
    """What is known about the machine.

    ``cores`` do as much together as ``effective_cores`` that disturb each other in nothing.
    """

    cores: int
    effective_cores: float
    storage: Storage
    memory_gb_per_s: float

    def effective(self, cores: int) -> float:
        """Return how many effective cores *cores* of this machine are.

        >>> LoadingMachine(4, 2.5, Storage(1e8, 1e8), 10).effective(3)
        2.0
        """
        if self.cores == 1:
            return float(cores)
        return 1 + (cores - 1) * (self.effective_cores - 1) / (self.cores - 1)


@dataclass(frozen=True)
class SurveyRow:
    """A point of the grid.

    ``speed``, ``recent_speed`` (what was used last is cached, with the workers that suit that) and
    ``synergy_speed`` are samples per second; ``limit`` is what sets the pace. ``price`` is per
    hour, ``epoch_price`` per epoch.
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


@dataclass(frozen=True)
class _Point:
    """A job on so many cores of a machine, with so many loader workers and so much data cached."""

    job: LoadingJob
    machine: LoadingMachine
    cores: int
    workers: int
    cache: float

    def pace(self, hits: float) -> Pace:
        """Return the pace where a share *hits* of the data is found in memory."""
        return self.pace_of(_mean(self.job.compute), _mean(self.job.prepare), hits)

    def pace_of(self, compute: float, prepare: float, hits: float) -> Pace:
        """Return the pace with these times of the parts."""
        return pace(
            self.job.step(compute, prepare),
            self.machine.storage,
            workers=self.workers,
            hits=hits,
            cores=self.machine.effective(self.cores),
            measured=self.job.measured.get((self.cores, self.workers)),
        )

    @property
    def seconds(self) -> float:
        """What a step takes behind a cache of fixed content."""
        return self.pace(fixed_hits(self.cache)).seconds


def survey(
    job: LoadingJob,
    machine: LoadingMachine,
    *,
    cores: Iterable[int],
    cache: Iterable[float],
    workers: Sequence[int] | None = None,
    price: Price | None = None,
) -> list[SurveyRow]:
    """Return a row for each number of *cores* and each cached fraction, and number of *workers*.

    Without *workers* each point has as many as make it fastest, the fewest of equals.
    """
    rows = []
    for count, fraction in product(cores, cache):
        tried = range(2 * count + 1) if workers is None else workers
        points = [_Point(job, machine, count, w, fraction) for w in tried]
        groups = [points] if workers is None else [[point] for point in points]
        rows += [_row(group, price) for group in groups]
    return rows


def _fastest(points: Sequence[_Point]) -> _Point:
    best = min(point.seconds for point in points)
    return next(point for point in points if point.seconds <= best * ALIKE)


def _row(points: Sequence[_Point], price: Price | None) -> SurveyRow:
    """Return the row of the fastest of *points*, which differ in their workers only."""
    point = _fastest(points)
    job, ours = point.job, point.pace(fixed_hits(point.cache))
    recent = min(each.pace(recent_hits(each.cache)).seconds for each in points)
    epoch = _seconds(point).scale(job.samples / job.batch_size, "s")
    hourly = (
        None if price is None else _price_per_hour(price, point.cores, point.cache * job.dataset_gb)
    )
    return SurveyRow(
        cores=point.cores,
        cache=point.cache,
        workers=point.workers,
        speed=_speed(epoch, job.samples),
        limit=ours.limit,
        recent_speed=job.batch_size / recent,
        synergy_speed=job.samples / _synergy_epoch(point),
        epoch=epoch,
        price=hourly,
        epoch_price=None if hourly is None else hourly * epoch.value / 3600,
    )


def _seconds(point: _Point) -> Answer:
    """Return the step, its range from repeats of the measurements and the error of the form."""
    random, value = np.random.default_rng(SEED), point.seconds
    computes, prepares = (_resample(t, random) for t in (point.job.compute, point.job.prepare))
    hits = fixed_hits(point.cache)
    drawn = [point.pace_of(*t, hits).seconds for t in zip(computes, prepares, strict=True)]
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]) / value
    below, above = (float(np.hypot(max(off, 0), MODEL_ERROR)) for off in (1 - low, high - 1))
    is_tested = point.cores <= TESTED_CORES and point.workers <= TESTED_WORKERS
    status = VALIDATED if is_tested else UNVALIDATED
    return Answer(value, value * max(1 - below, LEAST), value * (1 + above), "s", LEVEL, status)


def _speed(epoch: Answer, samples: int) -> Answer:
    value, low, high = (samples / end for end in (epoch.value, epoch.high, epoch.low))
    return replace(epoch, value=value, low=low, high=high, unit="samples/s")


def _synergy_epoch(point: _Point) -> float:
    """Return Synergy's epoch, from ours with everything cached."""
    job, machine = point.job, point.machine
    ours = synergy(
        point.pace(1.0).seconds * job.samples / job.batch_size,
        dataset_gb=job.dataset_gb,
        fraction=point.cache,
        memory_gb_per_s=machine.memory_gb_per_s,
        disk_mb_per_s=machine.storage.disk / 1e6,
    )
    return ours.epoch


def _resample(times: Sequence[float], random: np.random.Generator) -> list[float]:
    picks = random.integers(0, len(times), (DRAWS, len(times)))
    return [float(mean) for mean in np.asarray(times)[picks].mean(axis=1)]


def _mean(times: Sequence[float]) -> float:
    return float(np.mean(times))


def _price_per_hour(price: Price, cores: int, cache_gb: float) -> float:
    return price.core * cores + price.memory_gb * cache_gb + price.rest


def choose_cheapest(rows: Sequence[SurveyRow], within: float) -> SurveyRow:
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
