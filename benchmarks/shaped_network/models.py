"""Networks for training over shaped links: chains of layers, small enough for one core.

A chain can be cut between any two layers, which is what pipelines do. Nothing is downloaded:
weights and data are random. Each has 5 to 20 MB of gradients.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - the field's name for it

from foretrace.tracer.lab.zoo.sequences import TransformerBlock
from foretrace.tracer.lab.zoo.vision import conv_norm

if TYPE_CHECKING:
    from collections.abc import Callable

LEARNING_RATE = 1e-4
MOMENTUM = 0.9


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


def _mlp() -> LayerChain:
    """Return a chain whose last layer, the first to have its gradient, is five sixths of all."""
    return LayerChain(*(_dense(512, 512) for _ in range(3)), nn.Linear(512, 8000))


def _wide() -> LayerChain:
    return LayerChain(*(_dense(768, 768) for _ in range(5)), nn.Linear(768, 768))


def _dense(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, outputs), nn.ReLU())


def _conv() -> LayerChain:
    widths = (3, 32, 64, 64, 128, 128, 256, 256, 256)
    strides = (1, 2, 1, 2, 1, 2, 1, 1)
    convolutions = zip(pairwise(widths), strides, strict=True)
    blocks = [conv_norm(a, b, 3, stride=stride) for (a, b), stride in convolutions]
    return LayerChain(*blocks, Mean(2, 3), nn.Linear(256, 100))


def _gpt() -> LayerChain:
    blocks = [TransformerBlock(192, 4, causal=True, norm_first=True) for _ in range(4)]
    return LayerChain(
        Words(2000, 64, 192), *blocks, nn.Sequential(nn.LayerNorm(192), nn.Linear(192, 2000))
    )


def _lstm() -> LayerChain:
    return LayerChain(
        nn.Embedding(3000, 256), *(Recurrent(256) for _ in range(2)), nn.Linear(256, 3000)
    )


def _mixer() -> LayerChain:
    patches = nn.Sequential(nn.Conv2d(3, 192, 8, stride=8), nn.Flatten(2), Transposed())
    blocks = [Mixer(64, 192) for _ in range(6)]
    return LayerChain(patches, *blocks, Mean(1), nn.Linear(192, 100))


class Transposed(nn.Module):
    """The last two axes swapped."""

    def forward(self, x: Any) -> Any:
        """Return *x* with its last two axes swapped."""
        return x.transpose(1, 2)


def _vectors(samples: int, *, width: int, classes: int) -> tuple[Any, Any]:
    return torch.randn(samples, width), torch.randint(classes, (samples,))


def _images(samples: int, *, pixels: int, classes: int) -> tuple[Any, Any]:
    return torch.randn(samples, 3, pixels, pixels), torch.randint(classes, (samples,))


def _tokens(samples: int, *, length: int, words: int) -> tuple[Any, Any]:
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


_GPT_DATA = {"length": 64, "words": 2000}
EXAMPLES = {
    "mlp": Example(_mlp, _vectors, 32, {"width": 512, "classes": 8000}, cut=3),
    "wide": Example(_wide, _vectors, 64, {"width": 768, "classes": 768}, cut=3),
    "conv": Example(_conv, _images, 12, {"pixels": 32, "classes": 100}, cut=4),
    "gpt": Example(_gpt, _tokens, 3, _GPT_DATA, cut=3),
    "gpt-8": Example(_gpt, _tokens, 8, _GPT_DATA, cut=3),
    "lstm": Example(_lstm, _tokens, 8, {"length": 24, "words": 3000}, cut=2),
    "mixer": Example(_mixer, _images, 4, {"pixels": 64, "classes": 100}, cut=4),
}
"""``gpt-8`` is ``gpt`` with enough samples to be split into micro-batches."""


class ForwardClock:
    """Sums up how long the forward passes of a network took, without what a wrapper adds."""

    def __init__(self, network: Any) -> None:
        """Time *network* from now on."""
        self._ns = self._began = 0
        network.register_forward_pre_hook(self._enter)
        network.register_forward_hook(self._leave)

    def take(self) -> int:
        """Return the time since the last call, in ns."""
        taken, self._ns = self._ns, 0
        return taken

    def _enter(self, _network: Any, _inputs: Any) -> None:
        self._began = time.perf_counter_ns()

    def _leave(self, _network: Any, _inputs: Any, _output: Any) -> None:
        self._ns += time.perf_counter_ns() - self._began


@dataclass
class Lone:
    """One training job in one process: what a scheme spreads over ranks, and the baseline."""

    name: str
    network: LayerChain
    optimizer: Any
    batch: tuple[Any, Any]
    clock: ForwardClock

    def step(self) -> None:
        """Run one iteration."""
        self.optimizer.zero_grad(set_to_none=True)
        self.network(*self.batch).backward()
        self.optimizer.step()

    @property
    def gradient_bytes(self) -> int:
        """Bytes of all gradients."""
        return sum(p.numel() * p.element_size() for p in self.network.parameters())


def lone(name: str) -> Lone:
    """Return the job *name* of `EXAMPLES`, freshly initialised, the same on every rank."""
    torch.manual_seed(0)
    example = EXAMPLES[name]
    network = example.network()
    batch = example.batch(example.samples, **example.sizes)
    return Lone(name, network, sgd(network), batch, ForwardClock(network))


def sgd(network: Any) -> Any:
    """Return the optimizer that all jobs use, over the parameters that *network* has now."""
    return torch.optim.SGD(network.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
