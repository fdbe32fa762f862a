"""Networks for images, after those of torchvision but none of them the zoo's.

``build(architecture, sizes)``: ``width`` channels, ``depth`` blocks, images of ``length`` pixels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - the field's name for it

from benchmarks.truth.nets.layers import Branches, Residual, Squeeze, conv
from benchmarks.truth.training import Parts

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.truth.spec import Sizes

CLASSES = 20


def build(architecture: str, sizes: Sizes) -> Parts:
    """Return the network *architecture* and the images that it trains on."""
    body, channels = BODIES[architecture](sizes)
    edge = sizes.length
    if architecture == "fcn":
        return _pixelwise(nn.Sequential(body, nn.Conv2d(channels, CLASSES, 1)), edge)
    if architecture == "espcn":
        return _upscaling(body, edge)
    if architecture == "r3d":
        return _classifier(Pooled(body, channels), lambda n: torch.randn(n, 3, 8, edge, edge))
    return _classifier(Pooled(body, channels), lambda n: torch.randn(n, 3, edge, edge))


class Pooled(nn.Module):
    """A classifier on the mean of all places."""

    def __init__(self, body: nn.Module, channels: int) -> None:
        super().__init__()
        self.body, self.head = body, nn.Linear(channels, CLASSES)

    def forward(self, x: Any) -> Any:
        """Return the logits."""
        return self.head(self.body(x).flatten(2).mean(2))


def _classifier(model: nn.Module, images: Callable[[int], Any]) -> Parts:
    return Parts(
        model,
        lambda batch: F.cross_entropy(model(batch[0]), batch[1]),
        lambda n: (images(n), torch.randint(CLASSES, (n,))),
    )


def _pixelwise(model: nn.Module, edge: int) -> Parts:
    def loss(batch: tuple[Any, ...]) -> Any:
        logits = F.interpolate(model(batch[0]), size=(edge, edge), mode="bilinear")
        return F.cross_entropy(logits, batch[1])

    return Parts(
        model,
        loss,
        lambda n: (torch.randn(n, 3, edge, edge), torch.randint(CLASSES, (n, edge, edge))),
    )


def _upscaling(model: nn.Module, edge: int) -> Parts:
    return Parts(
        model,
        lambda batch: F.l1_loss(model(batch[0]), batch[1]),
        lambda n: (torch.rand(n, 3, edge, edge), torch.rand(n, 3, 2 * edge, 2 * edge)),
    )


def _alexnet(sizes: Sizes) -> tuple[nn.Module, int]:
    wide = 2 * sizes.width
    layers: list[nn.Module] = [
        *(nn.Conv2d(3, sizes.width, 5, 2, 2), nn.ReLU(), nn.MaxPool2d(3, 2)),
        *(nn.Conv2d(sizes.width, wide, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2)),
    ]
    layers += [
        nn.Sequential(nn.Conv2d(wide, wide, 3, padding=1), nn.ReLU()) for _ in range(sizes.depth)
    ]
    return nn.Sequential(*layers, nn.Dropout()), wide


def _squeezenet(sizes: Sizes) -> tuple[nn.Module, int]:
    wide, narrow = 2 * sizes.width, sizes.width // 2

    def fire(inputs: int) -> nn.Sequential:
        sides = (nn.Conv2d(narrow, sizes.width, 1), nn.Conv2d(narrow, sizes.width, 3, padding=1))
        return nn.Sequential(nn.Conv2d(inputs, narrow, 1), nn.ReLU(), Branches(*sides), nn.ReLU())

    fires = [fire(sizes.width), *(fire(wide) for _ in range(sizes.depth))]
    stem = (nn.Conv2d(3, sizes.width, 3, 2), nn.ReLU(), nn.MaxPool2d(3, 2, ceil_mode=True))
    return nn.Sequential(*stem, *fires), wide


def _inception(sizes: Sizes) -> tuple[nn.Module, int]:
    width = sizes.width
    part = width // 4

    def mixed() -> nn.Module:
        return Branches(
            conv(width, part, 1),
            nn.Sequential(conv(width, part, 1), conv(part, part)),
            nn.Sequential(conv(width, part, 1), conv(part, part), conv(part, part)),
            nn.Sequential(nn.AvgPool2d(3, 1, 1), conv(width, width - 3 * part, 1)),
        )

    stem = nn.Sequential(conv(3, width, stride=2), nn.MaxPool2d(2))
    return nn.Sequential(stem, *(mixed() for _ in range(sizes.depth))), width


def _shufflenet(sizes: Sizes) -> tuple[nn.Module, int]:
    half = sizes.width // 2

    class Unit(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            filters = nn.Conv2d(half, half, 3, padding=1, groups=half, bias=False)
            self.branch = nn.Sequential(
                conv(half, half, 1), filters, nn.BatchNorm2d(half), conv(half, half, 1)
            )

        def forward(self, x: Any) -> Any:
            kept, changed = x.chunk(2, 1)
            both = torch.cat([kept, self.branch(changed)], 1)
            samples, channels, *edges = both.shape
            return both.view(samples, 2, channels // 2, *edges).transpose(1, 2).flatten(1, 2)

    units = (Unit() for _ in range(sizes.depth))
    return nn.Sequential(conv(3, sizes.width, stride=2), *units), sizes.width


def _regnet(sizes: Sizes) -> tuple[nn.Module, int]:
    width, groups = sizes.width, max(sizes.width // 16, 1)
    blocks = (
        Residual(
            *(conv(width, width, 1), conv(width, width, groups=groups), Squeeze(width)),
            *(nn.Conv2d(width, width, 1, bias=False), nn.BatchNorm2d(width)),
        )
        for _ in range(sizes.depth)
    )
    return nn.Sequential(conv(3, width, stride=2), *blocks), width


def _efficientnet(sizes: Sizes) -> tuple[nn.Module, int]:
    width, wide = sizes.width, 4 * sizes.width
    blocks = (
        Residual(
            *(conv(width, wide, 1), conv(wide, wide, 5, groups=wide), Squeeze(wide)),
            *(nn.Conv2d(wide, width, 1, bias=False), nn.BatchNorm2d(width)),
        )
        for _ in range(sizes.depth)
    )
    return nn.Sequential(conv(3, width, stride=2), *blocks), width


def _preact(sizes: Sizes) -> tuple[nn.Module, int]:
    """Pre-activated residual blocks with group norm, wide instead of deep."""
    width, groups = sizes.width, max(sizes.width // 8, 1)

    def half() -> tuple[nn.Module, ...]:
        filters = nn.Conv2d(width, width, 3, padding=1, bias=False)
        return nn.GroupNorm(groups, width), nn.ReLU(), filters

    blocks = (Residual(*half(), *half()) for _ in range(sizes.depth))
    return nn.Sequential(nn.Conv2d(3, width, 3, 2, 1), *blocks), width


def _fcn(sizes: Sizes) -> tuple[nn.Module, int]:
    width = sizes.width
    blocks = (Residual(conv(width, width, dilation=2**i % 7)) for i in range(sizes.depth))
    pyramid = Branches(*(conv(width, width // 4, dilation=d) for d in (1, 2, 4, 6)))
    stem = nn.Sequential(conv(3, width, stride=2), conv(width, width, stride=2))
    return nn.Sequential(stem, *blocks, pyramid), width


def _espcn(sizes: Sizes) -> tuple[nn.Module, int]:
    width = sizes.width
    blocks = (
        nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.PReLU()) for _ in range(sizes.depth)
    )
    up = (nn.Conv2d(width, 12, 3, padding=1), nn.PixelShuffle(2))
    return nn.Sequential(nn.Conv2d(3, width, 5, padding=2), *blocks, *up), 3


def _r3d(sizes: Sizes) -> tuple[nn.Module, int]:
    width = sizes.width
    blocks = (
        Residual(
            nn.Conv3d(width, width, 3, padding=1, bias=False), nn.BatchNorm3d(width), nn.ReLU()
        )
        for _ in range(sizes.depth)
    )
    stem = nn.Conv3d(3, width, (3, 5, 5), (1, 2, 2), (1, 2, 2))
    return nn.Sequential(stem, *blocks), width


def _mixer(sizes: Sizes) -> tuple[nn.Module, int]:
    width, tokens = sizes.width, (sizes.length // 8) ** 2

    class Turned(nn.Sequential):
        def forward(self, x: Any) -> Any:
            return super().forward(x.transpose(1, 2)).transpose(1, 2)

    def block() -> nn.Module:
        across = Turned(nn.Linear(tokens, 2 * tokens), nn.GELU(), nn.Linear(2 * tokens, tokens))
        within = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        norms = nn.LayerNorm(width), nn.LayerNorm(width)
        return nn.Sequential(Residual(norms[0], across), Residual(norms[1], within))

    class Patches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, width, 8, 8)
            self.blocks = nn.ModuleList(block() for _ in range(sizes.depth))

        def forward(self, x: Any) -> Any:
            x = self.stem(x).flatten(2).transpose(1, 2)
            for each in self.blocks:
                x = each(x)
            return x.transpose(1, 2)

    return Patches(), width


def _hourglass(sizes: Sizes) -> tuple[nn.Module, int]:
    width = sizes.width

    class Hourglass(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down, self.low, self.up = (conv(width, width) for _ in range(3))

        def forward(self, x: Any) -> Any:
            low = self.low(F.max_pool2d(self.down(x), 2))
            return self.up(x + F.interpolate(low, scale_factor=2.0))

    return nn.Sequential(
        conv(3, width, stride=2), *(Hourglass() for _ in range(sizes.depth))
    ), width


BODIES: dict[str, Callable[[Sizes], tuple[nn.Module, int]]] = {
    "alexnet": _alexnet,
    "squeezenet": _squeezenet,
    "inception": _inception,
    "shufflenet": _shufflenet,
    "regnet": _regnet,
    "efficientnet": _efficientnet,
    "preact": _preact,
    "fcn": _fcn,
    "espcn": _espcn,
    "r3d": _r3d,
    "mixer": _mixer,
    "hourglass": _hourglass,
}
"""Each makes, from sizes, what turns images into channels, and says how many."""
