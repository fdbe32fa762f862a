"""Loops over sequences, graphs and functions: CTC, routing, clipping, noise, double backward."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - the field's name for it

from benchmarks.truth.nets.layers import Attention, Residual, conv, mlp
from benchmarks.truth.training import Parts

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.truth.spec import Sizes

WORDS = 2_000
MELS, LETTERS = 40, 30


class Recurrent(nn.Module):
    """Frames to letters: a convolution over time, GRUs, a head."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.front = nn.Conv1d(MELS, sizes.width, 5, 2, 2)
        self.layers = nn.GRU(
            sizes.width, sizes.width, sizes.depth, batch_first=True, bidirectional=True
        )
        self.head = nn.Linear(2 * sizes.width, LETTERS)

    def forward(self, frames: Any) -> Any:
        """Return the logits, (samples, frames, letters)."""
        x = F.relu(self.front(frames)).transpose(1, 2)
        return self.head(self.layers(x)[0])


def _ctc(sizes: Sizes) -> Parts:
    """Speech: letters without known places."""
    model = Recurrent(sizes)

    def loss(batch: tuple[Any, ...]) -> Any:
        frames, letters, many = batch
        chances = model(frames).float().log_softmax(2).transpose(0, 1)
        long = torch.full((len(frames),), len(chances), dtype=torch.long)
        return F.ctc_loss(chances, letters, long, many, zero_infinity=True)

    return Parts(
        model,
        loss,
        lambda n: (
            torch.randn(n, MELS, 4 * sizes.length),
            torch.randint(1, LETTERS, (n, sizes.length // 2)),
            torch.randint(1, sizes.length // 2 + 1, (n,)),
        ),
    )


class Routed(nn.Module):
    """A mixture of experts: each token goes to the two that suit it most."""

    def __init__(self, width: int, experts: int = 4) -> None:
        super().__init__()
        self.norm, self.router = nn.LayerNorm(width), nn.Linear(width, experts)
        self.experts = nn.ModuleList(mlp(width, 4 * width, width) for _ in range(experts))

    def forward(self, x: Any) -> Any:
        """Return the new tokens."""
        tokens = self.norm(x).flatten(0, 1)
        weights, chosen = self.router(tokens).softmax(1).topk(2)
        out = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            rows, place = (chosen == number).nonzero(as_tuple=True)
            given = expert(tokens[rows]) * weights[rows, place, None]
            out = out.index_add(0, rows, given.to(out.dtype))
        return x + out.view_as(x)


class LanguageModel(nn.Module):
    """Words in, words out, with given blocks between."""

    def __init__(self, width: int, blocks: nn.ModuleList) -> None:
        super().__init__()
        self.words, self.blocks = nn.Embedding(WORDS, width), blocks
        self.head = nn.Linear(width, WORDS)

    def forward(self, words: Any) -> Any:
        """Return the logits."""
        x = self.words(words)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def _language(model: nn.Module, length: int) -> Parts:
    def loss(batch: tuple[Any, ...]) -> Any:
        return F.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten())

    return Parts(model, loss, lambda n: tuple(torch.randint(WORDS, (n, length)) for _ in range(2)))


def _moe(sizes: Sizes) -> Parts:
    heads = max(sizes.width // 32, 1)
    blocks = (
        nn.Sequential(Attention(sizes.width, heads, causal=True), Routed(sizes.width))
        for _ in range(sizes.depth)
    )
    return _language(LanguageModel(sizes.width, nn.ModuleList(blocks)), sizes.length)


class Layer(nn.Module):
    """One LSTM of a stack."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = nn.LSTM(width, width, batch_first=True)

    def forward(self, x: Any) -> Any:
        """Return its states."""
        return F.dropout(self.layer(x)[0], 0.2, self.training)


def _clipped(sizes: Sizes) -> Parts:
    """Clip the gradients of a recurrent language model, under a warm-up of the rate."""
    layers = nn.ModuleList(Layer(sizes.width) for _ in range(sizes.depth))
    model = LanguageModel(sizes.width, layers)
    parts = _language(model, sizes.length)
    rate = torch.optim.SGD([torch.zeros(1, requires_grad=True)], 1e-3)
    warm = torch.optim.lr_scheduler.LinearLR(rate)

    def clip() -> None:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)

    def follow(_batch: object) -> None:
        rate.step()
        warm.step()

    parts.before_update, parts.after_update = clip, follow
    return parts


class Isotropic(nn.Module):
    """A network that is told at which noise it looks."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.stem, self.time = conv(3, sizes.width), mlp(1, sizes.width, sizes.width)
        self.blocks = nn.ModuleList(
            Residual(nn.GroupNorm(4, sizes.width), conv(sizes.width, sizes.width))
            for _ in range(sizes.depth)
        )
        self.head = nn.Conv2d(sizes.width, 3, 3, padding=1)

    def forward(self, images: Any, noise: Any) -> Any:
        """Return what the noise was."""
        x = self.stem(images) + self.time(noise)[:, :, None, None]
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def _diffusion(sizes: Sizes) -> Parts:
    """Noise is added inside the loop, and has to be found."""
    model = Isotropic(sizes)

    def loss(batch: tuple[Any, ...]) -> Any:
        much = torch.rand(len(batch[0]), 1)
        noise = torch.randn_like(batch[0])
        level = much[:, :, None, None]
        return F.mse_loss(model(batch[0] * (1 - level) + noise * level, much), noise)

    return Parts(model, loss, lambda n: (torch.randn(n, 3, sizes.length, sizes.length),))


def _physics(sizes: Sizes) -> Parts:
    """Solve an equation: the loss holds derivatives of the network."""
    model = nn.Sequential(nn.Linear(2, sizes.width), nn.Tanh())
    for _ in range(sizes.depth):
        model.append(nn.Sequential(nn.Linear(sizes.width, sizes.width), nn.Tanh()))
    model.append(nn.Linear(sizes.width, 1))

    def loss(batch: tuple[Any, ...]) -> Any:
        places = batch[0].detach().requires_grad_()
        found = model(places)
        (slope,) = torch.autograd.grad(found.sum(), places, create_graph=True)
        (bend,) = torch.autograd.grad(slope[:, 0].sum(), places, create_graph=True)
        return (slope[:, 1] + found[:, 0] * slope[:, 0] - 0.01 * bend[:, 0]).square().mean()

    return Parts(model, loss, lambda n: (torch.rand(n, 2),))


class Messages(nn.Module):
    """A layer of a graph network with attention over neighbours."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weigh, self.change = nn.Linear(2 * width, 1), nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Any, source: Any, target: Any) -> Any:
        """Return the new features of all nodes."""
        ends = torch.cat([x[source], x[target]], 1)
        weight = F.leaky_relu(self.weigh(ends)).float().exp()
        total = torch.zeros(len(x), 1).index_add(0, target, weight)
        sent = (weight / total[target]).to(x.dtype) * self.change(x[source])
        return x + F.elu(self.norm(torch.zeros_like(x).index_add(0, target, sent)))


def _graph(sizes: Sizes) -> Parts:
    """Graphs of a batch are one graph with many parts; each sample has its own edges."""
    nodes, features = sizes.length, 16
    model = nn.ModuleDict(
        {
            "stem": nn.Linear(features, sizes.width),
            "layers": nn.ModuleList(Messages(sizes.width) for _ in range(sizes.depth)),
            "head": nn.Linear(sizes.width, 1),
        }
    )

    def loss(batch: tuple[Any, ...]) -> Any:
        given, edges, wanted = batch
        first = torch.arange(len(given))[:, None, None] * nodes
        source, target = (edges + first).transpose(0, 1).flatten(1)
        x = model["stem"](given.flatten(0, 1))
        for layer in model["layers"]:
            x = layer(x, source, target)
        return F.mse_loss(model["head"](x.view(len(given), nodes, -1).mean(1)).squeeze(1), wanted)

    return Parts(
        model,
        loss,
        lambda n: (
            torch.randn(n, nodes, features),
            torch.randint(nodes, (n, 2, 4 * nodes)),
            torch.randn(n),
        ),
    )


LOOPS: dict[str, Callable[[Sizes], Parts]] = {
    "ctc": _ctc,
    "moe": _moe,
    "clipped": _clipped,
    "diffusion": _diffusion,
    "physics": _physics,
    "graph": _graph,
}
