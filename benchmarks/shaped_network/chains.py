"""Layers that the networks over shaped links are chains of, and the data they train on."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - the field's name for it

if TYPE_CHECKING:
    from collections.abc import Callable


class LayerChain(nn.Module):
    """Layers one after another, and the cross entropy of what the last one gives."""

    def __init__(self, *layers: nn.Module) -> None:
        """Chain *layers*."""
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, inputs: Any, labels: Any) -> Any:
        """Return the loss."""
        return loss(self.layers(inputs), labels)


def loss(scores: Any, labels: Any) -> Any:
    """Return the cross entropy of *scores* (..., classes) against *labels* (...)."""
    return F.cross_entropy(scores.flatten(0, -2), labels.flatten())


class Words(nn.Module):
    """Embedded tokens plus their places."""

    def __init__(self, words: int, length: int, width: int) -> None:
        """Embed *words* and *length* places."""
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Embedding(length, width)

    def forward(self, tokens: Any) -> Any:
        """Return (samples, length, width)."""
        return self.words(tokens) + self.places(torch.arange(tokens.shape[1]))


class Recurrent(nn.Module):
    """One LSTM layer; gives its outputs alone."""

    def __init__(self, width: int) -> None:
        """Keep *width* features."""
        super().__init__()
        self.cell = nn.LSTM(width, width, batch_first=True)

    def forward(self, x: Any) -> Any:
        """Return (samples, length, width)."""
        return self.cell(x)[0]


class Mixer(nn.Module):
    """MLP-Mixer's block: one MLP across the places, one across the features."""

    def __init__(self, places: int, width: int) -> None:
        """Mix *places* and *width* features."""
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.across = _perceptron(places, 2 * places, places)
        self.along = _perceptron(width, 4 * width, width)

    def forward(self, x: Any) -> Any:
        """Return the block's output."""
        x = x + self.across(self.norms[0](x).transpose(1, 2)).transpose(1, 2)
        return x + self.along(self.norms[1](x))


class Mean(nn.Module):
    """The mean over all places, or over all pixels."""

    def __init__(self, *axes: int) -> None:
        """Average over *axes*."""
        super().__init__()
        self.axes = axes

    def forward(self, x: Any) -> Any:
        """Return (samples, features)."""
        return x.mean(self.axes)


def _perceptron(*widths: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.GELU()]
    return nn.Sequential(*layers[:-1])


def dense(inputs: int, outputs: int) -> nn.Sequential:
    """Return a linear layer and a ReLU."""
    return nn.Sequential(nn.Linear(inputs, outputs), nn.ReLU())


class Transposed(nn.Module):
    """The last two axes swapped."""

    def forward(self, x: Any) -> Any:
        """Return *x* with its last two axes swapped."""
        return x.transpose(1, 2)


def vectors(samples: int, *, width: int, classes: int) -> tuple[Any, Any]:
    """Return *samples* random vectors and their classes."""
    return torch.randn(samples, width), torch.randint(classes, (samples,))


def images(samples: int, *, pixels: int, classes: int) -> tuple[Any, Any]:
    """Return *samples* random images and their classes."""
    return torch.randn(samples, 3, pixels, pixels), torch.randint(classes, (samples,))


def tokens(samples: int, *, length: int, words: int) -> tuple[Any, Any]:
    """Return *samples* random sequences of tokens, and what is to be said of each."""
    tokens, labels = (torch.randint(words, (samples, length)) for _ in range(2))
    return tokens, labels


@dataclass(frozen=True)
class Example:
    """A network, what it trains on, and after how many layers a pipeline cuts it in two."""

    network: Callable[[], LayerChain]
    batch: Callable[..., tuple[Any, Any]]
    samples: int
    sizes: dict[str, int]
    cut: int
