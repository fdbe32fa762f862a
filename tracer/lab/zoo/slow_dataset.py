"""Data that takes time: a stand-in for files that are read and decoded, for loader pairs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

SIZE = 128
ROUNDS_TO_TIME = 30


class SlowBatches:
    """Whole batches, each after some waiting (I/O) and some numpy work (decoding)."""

    def __init__(self, batch: Sequence[Any], *, wait_ns: int, rounds: int) -> None:
        """Give copies of *batch*, each after *wait_ns* of sleep and *rounds* of work."""
        self.batch = tuple(batch)
        self.wait_ns = wait_ns
        self.rounds = rounds

    def __len__(self) -> int:
        """Return more batches than anybody will take."""
        return 1_000_000

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        """Return batch *index*."""
        time.sleep(self.wait_ns / 1e9)
        work(self.rounds)
        return tuple(part.clone() for part in self.batch)


def work(rounds: int) -> None:
    """Filter a fixed image *rounds* times, forward and back through the frequencies."""
    image = np.full((SIZE, SIZE), 0.5)
    for _ in range(rounds):
        image = np.fft.irfft2(np.fft.rfft2(image), s=image.shape)


def rounds_for(busy_ns: int) -> int:
    """Return how many rounds of `work` take about *busy_ns* on this machine, undisturbed."""
    work(1)
    began = time.perf_counter_ns()
    work(ROUNDS_TO_TIME)
    return max(1, round(busy_ns * ROUNDS_TO_TIME / (time.perf_counter_ns() - began)))
