"""Samples that cost time: a stand-in for files that are read and decoded."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
from torch.utils.data import DataLoader, Dataset

if TYPE_CHECKING:
    from benchmarks.truth.spec import DrawnJob

EDGE = 64
ENOUGH = 10_000_000


class CostlySamples(Dataset[Any]):
    """The samples of one batch over and over, each after some waiting and some numpy work."""

    def __init__(self, batch: tuple[Any, ...], *, wait_us: int, rounds: int) -> None:
        """Give the samples of *batch*, each after *wait_us* of waiting and *rounds* of work."""
        self.batch, self.wait_us, self.rounds = batch, wait_us, rounds

    def __len__(self) -> int:
        """Return more samples than anybody will take."""
        return ENOUGH

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        """Return sample *index*."""
        if self.wait_us:
            time.sleep(self.wait_us / 1e6)
        work(self.rounds)
        return tuple(part[index % len(part)] for part in self.batch)


def work(rounds: int) -> None:
    """Filter a small image *rounds* times; each takes about 0.05 ms where the list was drawn."""
    image = np.full((EDGE, EDGE), 0.5)
    for _ in range(rounds):
        image = np.fft.irfft2(np.fft.rfft2(image), s=image.shape)


def make_loader(batch: tuple[Any, ...], samples: int, job: DrawnJob, workers: int) -> Any:
    """Return a loader of batches of *samples* as *job* draws them, with so many *workers*."""
    data = CostlySamples(batch, wait_us=job.load_us, rounds=job.load_rounds)
    return DataLoader(data, samples, num_workers=workers)
