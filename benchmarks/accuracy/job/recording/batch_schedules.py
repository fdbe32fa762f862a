"""Train with batch sizes that follow a schedule; write what every epoch took.

Out, in the folder given: ``epochs.csv`` with one row per epoch of every run, and recordings
``MODEL-BATCH.parquet`` of single steps, made before the runs, from which the runs are predicted.
"""

from __future__ import annotations

import argparse
import csv
import time
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import nn

from foretrace.tracer.job import Job
from foretrace.tracer.recording.record import record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

RECORDED = (16, 64, 256)
SCHEDULES = {
    "thirds": ((16, 10), (64, 10), (256, 10)),
    "doubling": ((16, 3), (32, 6), (64, 9), (128, 12)),
}
"""Pairs of batch size and epochs."""


class Training(NamedTuple):
    """A model with its optimizer, and the samples of an epoch."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    inputs: torch.Tensor
    labels: torch.Tensor

    def step(self, start: int, size: int) -> None:
        """Train on *size* samples from *start* on."""
        inputs, labels = self.inputs[start : start + size], self.labels[start : start + size]
        self.optimizer.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(self.model(inputs), labels).backward()
        self.optimizer.step()

    def job(self, size: int) -> Job:
        """Return the training at one batch size, to be recorded."""
        starts = self._starts(size)
        return Job(lambda: self.step(next(starts), size), self.model, self.optimizer, size)

    def _starts(self, size: int) -> Iterator[int]:
        while True:
            yield from range(0, len(self.inputs) - size + 1, size)


def cnn(samples: int) -> Training:
    """Return three convolutions and a wide classifier."""
    layers = [nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    layers += [nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)]
    layers += [nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.Flatten()]
    layers += [nn.Linear(64 * 4 * 4, 1024), nn.ReLU(), nn.Linear(1024, 10)]
    return _training(nn.Sequential(*layers), torch.randn(samples, 3, 16, 16))


def mlp(samples: int) -> Training:
    """Return three wide layers."""
    widths = (512, 1024, 1024, 10)
    layers = [nn.Sequential(nn.Linear(a, b), nn.ReLU()) for a, b in pairwise(widths)]
    return _training(nn.Sequential(*layers), torch.randn(samples, widths[0]))


def _training(model: nn.Module, inputs: torch.Tensor) -> Training:
    adam = torch.optim.Adam(model.parameters(), lr=1e-4, foreach=False)
    return Training(model, adam, inputs, torch.arange(len(inputs)) % 10)


MODELS: dict[str, tuple[Callable[[int], Training], int]] = {"cnn": (cnn, 2048), "mlp": (mlp, 1024)}
"""How each is made, and samples of an epoch."""


def cnn_job(batch_size: int = RECORDED[0]) -> Job:
    """Return what was recorded, for ``foretrace calibrate``."""
    return _job("cnn", batch_size)


def mlp_job(batch_size: int = RECORDED[0]) -> Job:
    """Return what was recorded, for ``foretrace calibrate``."""
    return _job("mlp", batch_size)


def _job(name: str, batch_size: int) -> Job:
    torch.set_num_threads(1)
    make, samples = MODELS[name]
    return make(samples).job(batch_size)


def run(training: Training, schedule: tuple[tuple[int, int], ...]) -> list[tuple[int, float]]:
    """Train by *schedule*; return batch size and seconds of every epoch."""
    epochs_taken = []
    for size, epochs in schedule:
        for _ in range(epochs):
            began = time.perf_counter()
            for start in range(0, len(training.inputs), size):
                training.step(start, size)
            epochs_taken.append((size, time.perf_counter() - began))
    return epochs_taken


def main() -> None:
    """Record, then train each model by each schedule."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=2)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows = []
    for name, (make, samples) in MODELS.items():
        for size in RECORDED:
            record(make(samples).job(size), windows=6, out=chosen.out / f"{name}-{size}.parquet")
        for repeat in range(chosen.repeats):
            for schedule, regimes in SCHEDULES.items():
                epochs = run(make(samples), regimes)
                rows += [(name, schedule, repeat, samples, *epoch) for epoch in epochs]
                total = sum(seconds for _size, seconds in epochs)
                print(f"{name} {schedule} {repeat}: {total:.2f} s", flush=True)
    with (chosen.out / "epochs.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("model", "schedule", "repeat", "samples", "batch_size", "seconds"))
        writer.writerows(rows)


if __name__ == "__main__":
    main()
