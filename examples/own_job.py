"""The smallest job worth recording: ``foretrace record examples/own_job.py:job``."""

import torch
from torch import nn

from foretrace import Job


def job(optimizer: str = "loop") -> Job:
    """Return an MLP trained with Adam, as a plain loop over its tensors or "fused"."""
    model = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 10))
    adam = torch.optim.Adam(model.parameters(), foreach=False, fused=optimizer == "fused")
    inputs, labels = torch.randn(64, 512), torch.randint(0, 10, (64,))

    def step() -> None:
        adam.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        adam.step()

    return Job(step, model=model, optimizer=adam, batch_size=64)


def fused() -> Job:
    """Return the same job after the change, to measure what was predicted."""
    return job("fused")
