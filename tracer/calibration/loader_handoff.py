"""Time what loader workers cost a job beyond the loading itself: a batch handed over.

The job runs on batches that cost nothing to make, once made in its own process and once in
workers. The difference is what it takes to pass a batch on: pickling, shared memory, waking up,
and the caches that processes on the same cores take from each other.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torch.utils.data import DataLoader

from foretrace.errors import RecordError
from foretrace.tracer.calibration.file import Timing
from foretrace.tracer.child_process import worker_of_this
from foretrace.tracer.job import runner
from foretrace.tracer.recording.job_metadata import iterate_alone
from foretrace.tracer.step_stats import SETTLE_PER_WORKER, neighbours_ratio, trimmed_mean

if TYPE_CHECKING:
    from collections.abc import Callable

    from foretrace.tracer.job import Job

ROUNDS = 10
BLOCK = 3


class SameBatch:
    """A data set of copies of one batch, which take no time to make."""

    def __init__(self, batch: Any) -> None:
        """Give copies of *batch*."""
        self.batch = batch

    def __len__(self) -> int:
        """Return more batches than anybody will take."""
        return 1_000_000

    def __getitem__(self, index: int) -> Any:
        """Return the batch, copied: a worker cannot pass on memory that it shares already."""
        return _copy(self.batch)


def _copy(part: Any) -> Any:
    if isinstance(part, dict):
        return {name: _copy(value) for name, value in part.items()}
    if isinstance(part, list | tuple):
        return [_copy(value) for value in part]
    return part.clone() if hasattr(part, "clone") else part


def handover_time(job: Job, workers: int, *, rounds: int = ROUNDS) -> Timing:
    """Time a step on batches from *workers* less a step on batches made by the job itself.

    Raises
    ------
    RecordError
        The job has no `DataLoader`, or *workers* is 0.
    """
    if not isinstance(job.loader, DataLoader) or workers < 1:
        raise RecordError(f"{job.name!r} has no DataLoader whose batches workers could hand over")
    dataset = SameBatch(next(iterate_alone(job.loader)))
    forms = [_steps(job, dataset, count) for count in (0, workers)]
    for run, count in zip(forms, (0, workers), strict=True):
        for _ in range(2 + SETTLE_PER_WORKER * count):
            run()
    blocks: tuple[list[float], list[float]] = [], []
    for turn in range(rounds):
        for side in (0, 1) if turn % 2 == 0 else (1, 0):
            blocks[side].append(trimmed_mean([_time(forms[side]) for _ in range(BLOCK)]))
    ratio, unrest = neighbours_ratio(*blocks)
    inline = trimmed_mean(blocks[0])
    cost = max(ratio - 1, 0.0) * inline
    return Timing(cost, math.nan, unrest * inline / max(cost, 1.0))


def _steps(job: Job, dataset: SameBatch, workers: int) -> Callable[[], None]:
    loader: DataLoader[Any] = DataLoader(
        dataset,  # anything with a length and items will do
        batch_size=None,
        num_workers=workers,
        pin_memory=job.loader.pin_memory,
        multiprocessing_context=job.loader.multiprocessing_context if workers else None,
        worker_init_fn=worker_of_this(),
    )
    return runner(replace(job, loader=loader))


def _time(run: Callable[[], None]) -> int:
    began = time.perf_counter_ns()
    run()
    return time.perf_counter_ns() - began
