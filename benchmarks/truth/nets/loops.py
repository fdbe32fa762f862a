"""Training loops of other kinds than one network, one loss and one optimizer.

``build(architecture, sizes)`` as of the other networks; `LOOPS` has them all by name.
"""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - the field's name for it

from benchmarks.truth.nets import sequence_loops, step_loops
from benchmarks.truth.nets.layers import Attention, Residual, conv, mlp
from benchmarks.truth.training import Parts

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.truth.spec import Sizes

CLASSES = 20
DENSE = 32
EMA = 0.999


def build(architecture: str, sizes: Sizes) -> Parts:
    """Return the parts of the loop *architecture*."""
    return LOOPS[architecture](sizes)


def _two_optimizers(sizes: Sizes) -> Parts:
    """Wide and deep: tables by Adagrad, the deep part by the job's own optimizer."""
    tables = nn.ModuleList(nn.Embedding(5_000, sizes.width) for _ in range(8))
    deep = mlp(8 * sizes.width + DENSE, *([4 * sizes.width] * sizes.depth), 1)
    model = nn.ModuleDict({"tables": tables, "deep": deep})
    parts = _clicks(model, lambda ids, t: t(ids))
    parts.groups = [(list(tables.parameters()), "adagrad"), (list(deep.parameters()), "")]
    return parts


def _sparse(sizes: Sizes) -> Parts:
    """Tables with sparse gradients, several entries a sample."""
    tables = nn.ModuleList(
        nn.EmbeddingBag(20_000, sizes.width, mode="sum", sparse=True) for _ in range(8)
    )
    deep = mlp(8 * sizes.width + DENSE, *([4 * sizes.width] * sizes.depth), 1)
    model = nn.ModuleDict({"tables": tables, "deep": deep})
    parts = _clicks(model, lambda ids, table: table(ids))
    parts.sample = lambda n: (
        torch.randn(n, DENSE),
        torch.randint(20_000, (n, 8, 4)),
        torch.randint(2, (n,)).float(),
    )
    parts.groups = [(list(tables.parameters()), "sparse_adam"), (list(deep.parameters()), "")]
    return parts


def _clicks(model: Any, look_up: Callable[[Any, Any], Any]) -> Parts:
    def loss(batch: tuple[Any, ...]) -> Any:
        dense, ids, clicked = batch
        found = [look_up(ids[:, i], table) for i, table in enumerate(model["tables"])]
        logits = model["deep"](torch.cat([dense, *found], 1)).squeeze(1)
        return F.binary_cross_entropy_with_logits(logits, clicked)

    return Parts(
        model,
        loss,
        lambda n: (
            torch.randn(n, DENSE),
            torch.randint(5_000, (n, 8)),
            torch.randint(2, (n,)).float(),
        ),
    )


def _frozen(sizes: Sizes) -> Parts:
    """Train a head on a backbone that does not learn."""
    backbone = _backbone(sizes)
    for parameter in backbone.parameters():
        parameter.requires_grad_(requires_grad=False)
    head = mlp(sizes.width, 4 * sizes.width, CLASSES)
    return _images(nn.ModuleDict({"backbone": backbone, "head": head}), sizes)


def _evaluating(sizes: Sizes) -> Parts:
    """Every step ends with a look at other data, without gradients."""
    parts = _images(
        nn.ModuleDict({"backbone": _backbone(sizes), "head": mlp(sizes.width, CLASSES)}), sizes
    )

    def evaluate(batch: tuple[Any, ...]) -> None:
        parts.model.eval()
        with torch.no_grad():
            for part in (0, 1):
                parts.loss(tuple(each.roll(part + 1, 0) for each in batch)).item()
        parts.model.train()

    parts.after_update = evaluate
    return parts


def _averaged(sizes: Sizes) -> Parts:
    """Keep a moving average of all weights."""
    blocks = nn.ModuleList(
        Attention(sizes.width, max(sizes.width // 32, 1)) for _ in range(sizes.depth)
    )
    model = nn.ModuleDict(
        {
            "words": nn.Embedding(2_000, sizes.width),
            "blocks": blocks,
            "head": nn.Linear(sizes.width, CLASSES),
        }
    )
    average = deepcopy(model)

    def loss(batch: tuple[Any, ...]) -> Any:
        x = model["words"](batch[0])
        for block in blocks:
            x = block(x)
        return F.cross_entropy(model["head"](x.mean(1)), batch[1])

    def follow(_batch: object) -> None:
        with torch.no_grad():
            for old, new in zip(average.parameters(), model.parameters(), strict=True):
                old.lerp_(new, 1 - EMA)

    return Parts(
        model,
        loss,
        lambda n: (torch.randint(2_000, (n, sizes.length)), torch.randint(CLASSES, (n,))),
        after_update=follow,
    )


def _distilled(sizes: Sizes) -> Parts:
    """Let a small network learn from a larger one that is only asked."""
    teacher = nn.Sequential(_backbone(sizes), mlp(sizes.width, CLASSES)).eval()
    small = type(sizes)(max(sizes.width // 2, 8), sizes.depth, sizes.length)
    model = nn.ModuleDict({"backbone": _backbone(small), "head": mlp(small.width, CLASSES)})
    parts = _images(model, sizes)

    def loss(batch: tuple[Any, ...]) -> Any:
        with torch.no_grad():
            told = teacher(batch[0]).softmax(1)
        logits = model["head"](model["backbone"](batch[0]))
        return F.cross_entropy(logits, told) + F.cross_entropy(logits, batch[1])

    parts.loss = loss
    return parts


def _contrastive(sizes: Sizes) -> Parts:
    """Two views of each image, each compared with every other of the batch."""
    model = nn.ModuleDict({"backbone": _backbone(sizes), "head": mlp(sizes.width, sizes.width, 64)})

    def loss(batch: tuple[Any, ...]) -> Any:
        views = torch.cat([batch[0], batch[0].flip(3) + 0.1 * torch.randn_like(batch[0])])
        seen = F.normalize(model["head"](model["backbone"](views)), dim=1)
        own = torch.eye(len(views), dtype=torch.bool, device=seen.device)
        alike = (seen @ seen.t() / 0.5).masked_fill(own, -1e4)
        return F.cross_entropy(alike, torch.arange(len(views)).roll(len(batch[0])))

    return Parts(model, loss, lambda n: (torch.randn(n, 3, sizes.length, sizes.length),))


def _backbone(sizes: Sizes) -> nn.Sequential:
    width = sizes.width
    blocks = (
        Residual(conv(width, width), nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width))
        for _ in range(sizes.depth)
    )
    ends = (nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return nn.Sequential(conv(3, width, stride=2), *blocks, *ends)


def _images(model: Any, sizes: Sizes) -> Parts:
    edge = sizes.length
    return Parts(
        model,
        lambda batch: F.cross_entropy(model["head"](model["backbone"](batch[0])), batch[1]),
        lambda n: (torch.randn(n, 3, edge, edge), torch.randint(CLASSES, (n,))),
    )


LOOPS: dict[str, Callable[[Sizes], Parts]] = {
    "two_optimizers": _two_optimizers,
    "sparse": _sparse,
    "frozen": _frozen,
    "evaluating": _evaluating,
    "averaged": _averaged,
    "distilled": _distilled,
    "contrastive": _contrastive,
    **sequence_loops.LOOPS,
    **step_loops.LOOPS,
}
