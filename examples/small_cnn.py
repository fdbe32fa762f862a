"""A small CNN trained on the CPU (or a GPU, if there is one): the job that ``make demo`` records.

Run it as ``foretrace record examples/small_cnn.py:job``. The variants are the same job after a
change, so that a prediction can be compared with what really happens.
"""

from __future__ import annotations

import os
import time
import warnings

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from foretrace import Job

IMAGE = 32
CLASSES = 100


class Photos(Dataset):
    """Stands for photos on a slow disk: a wait for each read, then filtering with numpy."""

    def __init__(self, *, read_ms: float, filters: int) -> None:
        self.read_ms = read_ms
        self.filters = filters

    def __len__(self) -> int:
        """Return more photos than anybody will train on."""
        return 1_000_000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        """Return photo *index* and its class."""
        noise = np.random.default_rng(index).standard_normal((3, IMAGE, IMAGE), dtype=np.float32)
        time.sleep(self.read_ms / 1000)
        for _ in range(self.filters):
            spectrum = np.fft.rfft2(noise)
            spectrum[:, IMAGE // 2 :] *= 0.5
            noise = np.fft.irfft2(spectrum, s=(IMAGE, IMAGE)).astype(np.float32)
        return torch.from_numpy(noise), index % CLASSES


def network() -> nn.Sequential:
    """Return four convolutions and a wide classifier: about 5 million parameters."""
    layers: list[nn.Module] = []
    channels = 3
    for width, shrinks in ((32, False), (64, True), (64, True), (128, True)):
        layers += [nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
        if shrinks:
            layers.append(nn.MaxPool2d(2))
        channels = width
    head = [nn.Flatten(), nn.Linear(128 * 4 * 4, 2048), nn.ReLU(), nn.Linear(2048, CLASSES)]
    return nn.Sequential(*layers, *head)


def job(*, optimizer: str = "loop", workers: int | None = None, batch_size: int = 16) -> Job:
    """Return the training job.

    Parameters
    ----------
    optimizer
        How Adam updates: "loop" over the parameters, "foreach" or "fused".
    workers
        Loader processes; 0 loads in the main process, ``None`` trains on one batch in memory.
    batch_size
        Images per step.
    """
    torch.manual_seed(0)
    torch.set_num_threads(max(1, cores() // 2))  # the other half is for loading
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = network().to(device)
    adam = torch.optim.Adam(
        model.parameters(), lr=1e-4, foreach=optimizer == "foreach", fused=optimizer == "fused"
    )
    cross_entropy = nn.CrossEntropyLoss()

    def train(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
        images, labels = (part.to(device, non_blocking=True) for part in batch)
        adam.zero_grad(set_to_none=True)
        cross_entropy(model(images), labels).backward()
        adam.step()

    name = f"small_cnn {optimizer} batch {batch_size}"
    if workers is None:
        fixed = (torch.randn(batch_size, 3, IMAGE, IMAGE), torch.arange(batch_size) % CLASSES)
        return Job(lambda: train(fixed), model, adam, batch_size, name=name, device=device)
    loader = photos_in_batches(batch_size, workers)
    name = f"{name} workers {workers}"
    return Job(train, model, adam, batch_size, loader, name=name, device=device)


def photos_in_batches(batch_size: int, workers: int) -> DataLoader:
    """Return a loader; its workers wait for the disk, so more of them than cores make sense."""
    warnings.filterwarnings("ignore", "This DataLoader will create")
    return DataLoader(
        Photos(read_ms=2.5, filters=4),
        batch_size=batch_size,
        num_workers=workers,
        persistent_workers=workers > 0,
    )


def cores() -> int:
    """Return how many cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def fused() -> Job:
    """Return the job with the fused optimizer."""
    return job(optimizer="fused")


def loading() -> Job:
    """Return the job that loads its images in the main process."""
    return job(workers=0)


def workers() -> Job:
    """Return the job with two loader workers."""
    return job(workers=2)


def larger_batch() -> Job:
    """Return the job with batches twice as large."""
    return job(batch_size=32)
