"""Chains of layers drawn by a number: models that nothing was tuned on.

In: a name such as "drawn-7". Out: an `Example`, the same one wherever it is drawn.
"""

from __future__ import annotations

import random
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

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
from foretrace.tracer.lab.zoo.sequences import TransformerBlock
from foretrace.tracer.lab.zoo.vision import conv_norm

if TYPE_CHECKING:
    from collections.abc import Callable

PREFIX = "drawn-"


def draw(name: str) -> Example:
    """Return the example that *name*, "drawn-" and a number, stands for."""
    dice = random.Random(int(name.removeprefix(PREFIX)))  # noqa: S311 - no secret
    return dice.choice((_mlp, _conv, _transformer, _lstm, _mixer))(dice)


def _mlp(dice: random.Random) -> Example:
    width, depth, classes = dice.choice((256, 512, 768)), dice.randint(3, 6), dice.choice((10, 900))
    samples = dice.choice((16, 32, 64))

    def network() -> LayerChain:
        return LayerChain(*(dense(width, width) for _ in range(depth)), nn.Linear(width, classes))

    return _example(network, partial(vectors, width=width, classes=classes), samples, depth + 1)


def _conv(dice: random.Random) -> Example:
    widths = [3, *sorted(dice.choices((32, 64, 128, 192, 256), k=dice.randint(4, 7)))]
    pixels, samples = dice.choice((16, 32)), dice.choice((8, 16))

    def network() -> LayerChain:
        blocks = [
            conv_norm(before, after, 3, stride=1 + (at % 2))
            for at, (before, after) in enumerate(pairwise(widths))
        ]
        return LayerChain(*blocks, Mean(2, 3), nn.Linear(widths[-1], 50))

    return _example(network, partial(images, pixels=pixels, classes=50), samples, len(widths) + 1)


def _transformer(dice: random.Random) -> Example:
    width, depth, words = dice.choice((128, 192, 256)), dice.randint(2, 4), dice.choice((500, 2000))
    length, samples = dice.choice((32, 64)), dice.choice((4, 8))

    def network() -> LayerChain:
        blocks = [TransformerBlock(width, 4, causal=True, norm_first=True) for _ in range(depth)]
        head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, words))
        return LayerChain(Words(words, length, width), *blocks, head)

    return _example(network, partial(tokens, length=length, words=words), samples, depth + 2)


def _lstm(dice: random.Random) -> Example:
    width, depth, words = dice.choice((128, 256)), dice.randint(1, 3), dice.choice((1000, 3000))
    length, samples = dice.choice((16, 32)), dice.choice((8, 16))

    def network() -> LayerChain:
        layers = [Recurrent(width) for _ in range(depth)]
        return LayerChain(nn.Embedding(words, width), *layers, nn.Linear(width, words))

    return _example(network, partial(tokens, length=length, words=words), samples, depth + 2)


def _mixer(dice: random.Random) -> Example:
    width, depth, samples = dice.choice((128, 192, 256)), dice.randint(2, 6), dice.choice((4, 8))

    def network() -> LayerChain:
        patches = nn.Sequential(nn.Conv2d(3, width, 8, stride=8), nn.Flatten(2), Transposed())
        blocks = [Mixer(64, width) for _ in range(depth)]
        return LayerChain(patches, *blocks, Mean(1), nn.Linear(width, 100))

    return _example(network, partial(images, pixels=64, classes=100), samples, depth + 3)


def _example(
    network: Callable[[], LayerChain],
    batch: Callable[..., tuple[Any, Any]],
    samples: int,
    layers: int,
) -> Example:
    return Example(network, batch, samples, {}, cut=layers // 2)
