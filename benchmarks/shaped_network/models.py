"""Networks for training over shaped links: chains of layers, small enough for one core.

A chain can be cut between any two layers, which is what pipelines do. Nothing is downloaded:
weights and data are random. Each has 5 to 20 MB of gradients; drawn ones may have less.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from benchmarks.shaped_network.chains import (
    Example,
    LayerChain,
    Mean,
    Mixer,
    Recurrent,
    Transposed,
    Words,
    dense,
    images,
    tokens,
    vectors,
)
from benchmarks.shaped_network.drawn_models import PREFIX, draw
from foretrace.tracer.lab.zoo.sequences import TransformerBlock
from foretrace.tracer.lab.zoo.vision import conv_norm

LEARNING_RATE = 1e-4
MOMENTUM = 0.9


def _mlp() -> LayerChain:
    """Return a chain whose last layer, the first to have its gradient, is five sixths of all."""
    return LayerChain(*(dense(512, 512) for _ in range(3)), nn.Linear(512, 8000))


def _wide() -> LayerChain:
    return LayerChain(*(dense(768, 768) for _ in range(5)), nn.Linear(768, 768))


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


_GPT_DATA = {"length": 64, "words": 2000}
EXAMPLES = {
    "mlp": Example(_mlp, vectors, 32, {"width": 512, "classes": 8000}, cut=3),
    "wide": Example(_wide, vectors, 64, {"width": 768, "classes": 768}, cut=3),
    "conv": Example(_conv, images, 12, {"pixels": 32, "classes": 100}, cut=4),
    "gpt": Example(_gpt, tokens, 3, _GPT_DATA, cut=3),
    "gpt-8": Example(_gpt, tokens, 8, _GPT_DATA, cut=3),
    "lstm": Example(_lstm, tokens, 8, {"length": 24, "words": 3000}, cut=2),
    "mixer": Example(_mixer, images, 4, {"pixels": 64, "classes": 100}, cut=4),
}
"""``gpt-8`` is ``gpt`` with enough samples to be split into micro-batches."""


def find_example(name: str) -> Example:
    """Return the example *name*: one of `EXAMPLES`, or one drawn by its number."""
    return draw(name) if name.startswith(PREFIX) else EXAMPLES[name]


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
    """Return the job *name*, freshly initialised, the same on every rank."""
    torch.manual_seed(0)
    example = find_example(name)
    network = example.network()
    batch = example.batch(example.samples, **example.sizes)
    return Lone(name, network, sgd(network), batch, ForwardClock(network))


def sgd(network: Any) -> Any:
    """Return the optimizer that all jobs use, over the parameters that *network* has now."""
    return torch.optim.SGD(network.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
