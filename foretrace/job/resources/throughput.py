"""How fast a job trains on so many cores with so much of its data in memory.

In: what a step costs its training process, its loader and the disk. Out: seconds of a step and what
limits it, by us and by Synergy's closed form. A cache keeps a fixed part of the data, or, as an
operating system's page cache does, what was used last.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

MB_PER_GB = 1024
"""As Synergy counts."""


@dataclass(frozen=True)
class Step:
    """What one step costs; times in seconds, each measured alone.

    ``compute`` is training on a batch at hand, on ``threads`` cores; ``prepare`` the processor time
    of making a batch whose data lies in memory; ``hand_over`` what the training process and a
    worker each spend on passing it; ``batch_bytes`` what a batch reads where nothing is cached.
    """

    compute: float
    prepare: float
    batch_bytes: float
    hand_over: float = 0.0
    threads: float = 1.0


@dataclass(frozen=True)
class Storage:
    """Rates in bytes per second: of the disk, and of one reader of it."""

    disk: float
    reader: float


class Pace(NamedTuple):
    """Seconds of a step, and what keeps it from being faster."""

    seconds: float
    limit: str


def pace(
    step: Step,
    storage: Storage,
    *,
    workers: int,
    hits: float,
    cores: float,
    measured: float | None = None,
) -> Pace:
    """Return the steady pace of training beside a loader.

    Parameters
    ----------
    step
        What a step costs.
    storage
        Where data that is not cached comes from.
    workers
        Loader processes; with 0 the training process loads.
    hits
        Share of the data that is found in memory.
    cores
        Effective cores: how many times as much the machine does in parallel as one core alone.
    measured
        Seconds of a step with these workers and everything cached, where that was measured.

    Notes
    -----
    Without workers everything follows each other. With workers the slowest of four sets the pace:
    training with taking over, the workers (each reads, prepares and hands over), the disk that
    they share, and the processor time of everybody over the effective cores.

    Examples
    --------
    >>> step = Step(compute=0.02, prepare=0.02, batch_bytes=1.2e6)
    >>> pace(step, Storage(40e6, 40e6), workers=1, hits=0.5, cores=2)
    Pace(seconds=0.035, limit='workers')
    """
    missed = step.batch_bytes * (1 - hits)
    reading = missed / storage.reader
    if workers == 0:
        alone = step.compute + step.prepare if measured is None else measured
        return Pace(alone + reading, "one process")
    limits = {
        "training": step.compute + step.hand_over,
        "cores": (step.threads * step.compute + step.prepare + 2 * step.hand_over) / cores,
        "workers": (step.prepare + step.hand_over + reading) / workers,
        "disk": missed / storage.disk,
    }
    if measured is not None:
        limits["cores"] = limits["training"] = measured
    slowest = max(limits, key=limits.__getitem__)
    return Pace(limits[slowest], slowest)


def fixed_hits(fraction: float) -> float:
    """Return the hit rate of a cache that keeps a fixed *fraction* of the data (MinIO).

    >>> fixed_hits(0.5)
    0.5
    """
    return fraction


def recent_hits(fraction: float) -> float:
    """Return the hit rate of a cache that keeps what was used last, as a page cache does.

    Every epoch reads each item once in a new random order. An item at place x of one epoch and y
    of the next is found if fewer than *fraction* of all items were read in between; these are the
    1 - x after it and the y before it, less the (1 - x) y that are both. With x and 1 - y uniform
    and independent, that is so with probability f + (1 - f) ln(1 - f).

    >>> [round(recent_hits(f), 3) for f in (0.0, 0.5, 0.9, 1.0)]
    [0.0, 0.153, 0.67, 1.0]
    """
    left = 1 - fraction
    return fraction + left * math.log(left) if left > 0 else 1.0


class Synergy(NamedTuple):
    """Synergy's epoch in seconds, its fetching alone, and the disk rate in MB/s that would hide it.

    The rate is None where reading from memory alone takes longer than the epoch.
    """

    epoch: float
    fetch: float
    needed_mb_per_s: float | None


def synergy(
    full_epoch: float,
    *,
    dataset_gb: float,
    fraction: float,
    memory_gb_per_s: float,
    disk_mb_per_s: float,
) -> Synergy:
    """Return Synergy's epoch with a *fraction* of the data in a cache of fixed content.

    *full_epoch* is the epoch, in seconds, with everything cached, on the same cores.
    Source: Synergy (OSDI 2022), optimistic profiling, as its code computes it.

    Examples
    --------
    >>> form = synergy(
    ...     262.8, dataset_gb=140, fraction=0.5, memory_gb_per_s=10, disk_mb_per_s=500)
    >>> round(form.fetch, 2), form.epoch, round(form.needed_mb_per_s, 1)
    (150.36, 262.8, 280.2)
    """
    cached = fraction * dataset_gb
    from_memory = cached / memory_gb_per_s
    missed = (dataset_gb - cached) * MB_PER_GB
    fetch = from_memory + missed / disk_mb_per_s
    spare = full_epoch - from_memory
    return Synergy(max(full_epoch, fetch), fetch, missed / spare if spare > 0 else None)
