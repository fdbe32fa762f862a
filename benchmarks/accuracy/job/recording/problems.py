"""Small problems to train on, one thread and about a millisecond a step, nothing downloaded.

Each function takes a seeded generator and returns a network and a function that draws a batch and
returns its loss. `PROBLEMS` lists them with a learning rate for SGD and one for Adam.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable

    Loss = Callable[[nn.Module], torch.Tensor]
    Build = Callable[[torch.Generator], tuple[nn.Module, Loss]]

BATCH, CLASSES, SAMPLES = 32, 10, 4096
LENGTH, LETTERS = 24, 30
MIXED = 0.1
"""Share of labels that are mixed up in the deep problem."""


@dataclass(frozen=True)
class Problem:
    """How to build it, and the learning rates that train it."""

    build: Build
    sgd: float
    adam: float


def least_squares(random: torch.Generator) -> tuple[nn.Module, Loss]:
    """Linear regression whose features have a power-law spectrum, with noisy answers."""
    scales = torch.arange(1, 257) ** -0.6
    truth = torch.randn(256, 1, generator=random)

    def loss(network: nn.Module) -> torch.Tensor:
        inputs = torch.randn(BATCH, 256, generator=random) * scales
        noise = 0.3 * torch.randn(BATCH, 1, generator=random)
        return functional.mse_loss(network(inputs), inputs @ truth + noise)

    return nn.Linear(256, 1), loss


def teacher(random: torch.Generator) -> tuple[nn.Module, Loss]:
    """Let a student network learn what a random teacher network says."""
    hidden = torch.randn(32, 64, generator=random) / 32**0.5
    out = torch.randn(64, 1, generator=random) / 8

    def loss(network: nn.Module) -> torch.Tensor:
        inputs = torch.randn(BATCH, 32, generator=random)
        return functional.mse_loss(network(inputs), torch.tanh(2 * inputs @ hidden) @ out)

    return nn.Sequential(nn.Linear(32, 96), nn.Tanh(), nn.Linear(96, 1)), loss


def clusters(random: torch.Generator) -> tuple[nn.Module, Loss]:
    """Tell overlapping clouds of points apart with a perceptron, in passes over a set."""
    centres = torch.randn(CLASSES * 4, 32, generator=random)
    chosen = torch.randint(len(centres), (SAMPLES,), generator=random)
    inputs = centres[chosen] + 1.2 * torch.randn(SAMPLES, 32, generator=random)
    draw = _passes(random)

    def loss(network: nn.Module) -> torch.Tensor:
        rows = draw()
        return functional.cross_entropy(network(inputs[rows]), chosen[rows] % CLASSES)

    layers = (nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, CLASSES))
    return nn.Sequential(*layers), loss


def images(random: torch.Generator) -> tuple[nn.Module, Loss]:
    """Tell noisy, shifted patterns apart with convolutions, in passes over a set."""
    patterns = torch.randn(CLASSES, 1, 12, 12, generator=random)
    chosen = torch.randint(CLASSES, (SAMPLES,), generator=random)
    shifts = torch.randint(3, (SAMPLES,), generator=random)
    shifted = torch.stack([patterns.roll(s, dims=3) for s in range(3)])
    inputs = shifted[shifts, chosen] + 1.5 * torch.randn(SAMPLES, 1, 12, 12, generator=random)
    draw = _passes(random)

    def loss(network: nn.Module) -> torch.Tensor:
        rows = draw()
        return functional.cross_entropy(network(inputs[rows]), chosen[rows])

    features = (nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    return nn.Sequential(*features, nn.Linear(200, CLASSES)), loss


def autoencoder(random: torch.Generator) -> tuple[nn.Module, Loss]:
    """Copy points of a curved surface through a narrow network."""
    up = torch.randn(6, 64, generator=random)

    def loss(network: nn.Module) -> torch.Tensor:
        inputs = torch.sin(torch.randn(BATCH, 6, generator=random) @ up)
        return functional.mse_loss(network(inputs), inputs)

    layers = (nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 12), nn.ReLU(), nn.Linear(12, 64))
    return nn.Sequential(*layers), loss


class LstmModel(nn.Module):
    """Letters in, scores of the next letters out."""

    def __init__(self) -> None:
        super().__init__()
        self.letters = nn.Embedding(LETTERS, 24)
        self.lstm = nn.LSTM(24, 48, batch_first=True)
        self.out = nn.Linear(48, LETTERS)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """Return scores of shape (texts, length, letters)."""
        return self.out(self.lstm(self.letters(text))[0])


class TransformerModel(nn.Module):
    """Letters in, scores of the next letters out."""

    def __init__(self) -> None:
        super().__init__()
        self.letters = nn.Embedding(LETTERS, 32)
        self.places = nn.Parameter(torch.zeros(LENGTH, 32))
        self.layer = nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True)
        self.out = nn.Linear(32, LETTERS)
        self.mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """Return scores of shape (texts, length, letters)."""
        return self.out(self.layer(self.letters(text) + self.places, src_mask=self.mask))


def lstm(random: torch.Generator) -> tuple[nn.Module, Loss]:
    """Let an LSTM read generated text."""
    return LstmModel(), _text(random)


def transformer(random: torch.Generator) -> tuple[nn.Module, Loss]:
    """Let a one-layer transformer read generated text."""
    return TransformerModel(), _text(random)


def deep(random: torch.Generator) -> tuple[nn.Module, Loss]:
    """Five layers with normalisation and dropout, on mixed-up labels in part."""
    centres = torch.randn(CLASSES, 32, generator=random)
    chosen = torch.randint(CLASSES, (SAMPLES,), generator=random)
    inputs = centres[chosen] + torch.randn(SAMPLES, 32, generator=random)
    mixed = torch.rand(SAMPLES, generator=random) < MIXED
    labels = torch.where(mixed, torch.randint(CLASSES, (SAMPLES,), generator=random), chosen)
    draw = _passes(random)

    def loss(network: nn.Module) -> torch.Tensor:
        rows = draw()
        return functional.cross_entropy(network(inputs[rows]), labels[rows])

    def block(width: int) -> list[nn.Module]:
        return [nn.Linear(width, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Dropout(0.1)]

    layers = [*block(32), *(layer for _ in range(3) for layer in block(48))]
    return nn.Sequential(*layers, nn.Linear(48, CLASSES)), loss


class Factors(nn.Module):
    """Numbers of a row and a column in, the product of their vectors out."""

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.columns = nn.Embedding(200, 8), nn.Embedding(200, 8)

    def forward(self, cells: torch.Tensor) -> torch.Tensor:
        """Return one number per cell."""
        return (self.rows(cells[:, 0]) * self.columns(cells[:, 1])).sum(1)


def factors(random: torch.Generator) -> tuple[nn.Module, Loss]:
    """Learn a noisy matrix of low rank, cell by cell."""
    left, right = (torch.randn(200, 8, generator=random) for _ in range(2))

    def loss(network: nn.Module) -> torch.Tensor:
        cells = torch.randint(200, (8 * BATCH, 2), generator=random)
        noise = 0.5 * torch.randn(len(cells), generator=random)
        wanted = (left[cells[:, 0]] * right[cells[:, 1]]).sum(1) + noise
        return functional.mse_loss(network(cells), wanted)

    return Factors(), loss


class GruModel(nn.Module):
    """Numbers in, the next numbers out."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(1, 32, batch_first=True)
        self.out = nn.Linear(32, 1)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Return values of shape (series, length, 1)."""
        return self.out(self.gru(values)[0])


def gru(random: torch.Generator) -> tuple[nn.Module, Loss]:
    """Foretell sums of sine waves with a recurrent network."""
    times = torch.arange(LENGTH + 1)

    def loss(network: nn.Module) -> torch.Tensor:
        periods = 4 + 12 * torch.rand(BATCH, 2, 1, generator=random)
        phases = 2 * torch.pi * torch.rand(BATCH, 2, 1, generator=random)
        waves = torch.sin(2 * torch.pi * times / periods + phases).sum(1)
        values = (waves + 0.1 * torch.randn(waves.shape, generator=random))[:, :, None]
        return functional.mse_loss(network(values[:, :-1]), values[:, 1:])

    return GruModel(), loss


def whole_set(random: torch.Generator) -> tuple[nn.Module, Loss]:
    """Show a perceptron all of a small set in each step: no noise at all."""
    inputs = torch.randn(256, 16, generator=random)
    answers = torch.sin(inputs @ torch.randn(16, 4, generator=random)).mean(1, keepdim=True)

    def loss(network: nn.Module) -> torch.Tensor:
        return functional.mse_loss(network(inputs), answers)

    return nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1)), loss


def _passes(random: torch.Generator) -> Callable[[], torch.Tensor]:
    """Return a function that gives rows of a batch: all samples once, in a new order every time."""
    left: list[torch.Tensor] = []

    def draw() -> torch.Tensor:
        if not left:
            left.extend(torch.randperm(SAMPLES, generator=random).split(BATCH))
        return left.pop()

    return draw


def _text(random: torch.Generator) -> Loss:
    """Return the loss on text in which a letter depends on the two before it."""
    odds = torch.softmax(2 * torch.randn(LETTERS, LETTERS, LETTERS, generator=random), dim=2)
    text = torch.zeros(SAMPLES // 4, LENGTH + 1, dtype=torch.long)
    text[:, :2] = torch.randint(LETTERS, (len(text), 2), generator=random)
    for place in range(2, LENGTH + 1):
        rows = odds[text[:, place - 2], text[:, place - 1]]
        text[:, place] = torch.multinomial(rows, 1, generator=random)[:, 0]

    def loss(network: nn.Module) -> torch.Tensor:
        rows = text[torch.randint(len(text), (BATCH // 2,), generator=random)]
        scores = network(rows[:, :-1]).flatten(0, 1)
        return functional.cross_entropy(scores, rows[:, 1:].flatten())

    return loss


PROBLEMS = {
    "least_squares": Problem(least_squares, 0.03, 3e-3),
    "teacher": Problem(teacher, 0.05, 1e-3),
    "clusters": Problem(clusters, 0.1, 1e-3),
    "images": Problem(images, 0.02, 1e-3),
    "autoencoder": Problem(autoencoder, 0.3, 1e-3),
    "lstm": Problem(lstm, 1.0, 3e-3),
    "transformer": Problem(transformer, 0.1, 1e-3),
    "whole_set": Problem(whole_set, 0.1, 1e-3),
    "deep": Problem(deep, 0.05, 1e-3),
    "factors": Problem(factors, 5.0, 1e-2),
    "gru": Problem(gru, 0.1, 3e-3),
}
