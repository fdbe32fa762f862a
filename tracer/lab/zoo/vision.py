"""Networks written with torch alone, each taking its sizes as numbers and returning the loss.

``forward(*batch)`` computes the loss, so that every operator of a step lies inside a module.
``Checkpointed.run`` is where a network can trade memory for a second forward.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - the field's name for it
from torch.utils.checkpoint import checkpoint


class Checkpointed(nn.Module):
    """A network whose `run` may recompute a part's activations in backward."""

    checkpointing = False

    def run(self, part: nn.Module, *inputs: Any) -> Any:
        """Apply *part*, keeping its activations unless checkpointing is on."""
        if self.checkpointing:
            return checkpoint(part, *inputs, use_reentrant=False)
        return part(*inputs)


def conv_norm(
    inputs: int, outputs: int, kernel: int, *, stride: int = 1, groups: int = 1
) -> nn.Sequential:
    """Return convolution, batch norm and ReLU."""
    return nn.Sequential(
        nn.Conv2d(
            inputs, outputs, kernel, stride=stride, padding=kernel // 2, groups=groups, bias=False
        ),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    )


class Bottleneck(nn.Module):
    """ResNet's block: 1x1, 3x3, 1x1 with a shortcut."""

    def __init__(self, inputs: int, width: int, *, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.narrow = conv_norm(inputs, width, 1)
        self.spread = conv_norm(width, width, 3, stride=stride)
        self.widen = nn.Sequential(
            nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
        )
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Any) -> Any:
        """Return the block's output."""
        return F.relu(self.widen(self.spread(self.narrow(x))) + self.shortcut(x))


class ResNet(Checkpointed):
    """ResNet with bottlenecks; ``blocks=(3, 4, 6, 3), width=64`` is ResNet-50."""

    def __init__(self, *, blocks: tuple[int, ...], width: int, classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv_norm(3, width, 7, stride=2), nn.MaxPool2d(3, 2, 1))
        inputs, stages = width, []
        for stage, count in enumerate(blocks):
            wide = width << stage
            parts = []
            for block in range(count):
                stride = 2 if block == 0 and stage > 0 else 1
                parts.append(Bottleneck(inputs, wide, stride=stride))
                inputs = 4 * wide
            stages.append(nn.Sequential(*parts))
        self.stages = nn.ModuleList(stages)
        self.head = nn.Linear(inputs, classes)

    def forward(self, images: Any, labels: Any) -> Any:
        """Return the loss."""
        x = self.stem(images)
        for stage in self.stages:
            x = self.run(stage, x)
        return F.cross_entropy(self.head(x.mean((2, 3))), labels)


class VGG(Checkpointed):
    """VGG; widths 64 to 512 with 2, 2, 4, 4, 4 convolutions is VGG-19."""

    def __init__(
        self,
        *,
        counts: tuple[int, ...],
        widths: tuple[int, ...],
        hidden: int,
        image: int,
        classes: int,
    ) -> None:
        super().__init__()
        inputs, stages = 3, []
        for count, width in zip(counts, widths, strict=True):
            layers: list[nn.Module] = []
            for _ in range(count):
                layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.ReLU()]
                inputs = width
            stages.append(nn.Sequential(*layers, nn.MaxPool2d(2)))
        self.stages = nn.ModuleList(stages)
        flat = inputs * (image >> len(counts)) ** 2
        self.head = nn.Sequential(
            nn.Flatten(),
            *(nn.Linear(flat, hidden), nn.ReLU(), nn.Dropout(0.5)),
            *(nn.Linear(hidden, hidden), nn.ReLU(), nn.Dropout(0.5)),
            nn.Linear(hidden, classes),
        )

    def forward(self, images: Any, labels: Any) -> Any:
        """Return the loss."""
        x = images
        for stage in self.stages:
            x = self.run(stage, x)
        return F.cross_entropy(self.head(x), labels)


class DenseLayer(nn.Module):
    """DenseNet's layer: its output is appended to its input."""

    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.BatchNorm2d(inputs), nn.ReLU(), nn.Conv2d(inputs, 4 * growth, 1, bias=False)),
            *(nn.BatchNorm2d(4 * growth), nn.ReLU()),
            nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False),
        )

    def forward(self, x: Any) -> Any:
        """Return input and new features side by side."""
        return torch.cat([x, self.layers(x)], 1)


class DenseNet(Checkpointed):
    """DenseNet; ``blocks=(6, 12, 24, 16), growth=32`` is DenseNet-121."""

    def __init__(self, *, blocks: tuple[int, ...], growth: int, classes: int) -> None:
        super().__init__()
        width = 2 * growth
        self.stem = nn.Sequential(conv_norm(3, width, 7, stride=2), nn.MaxPool2d(3, 2, 1))
        stages = []
        for stage, count in enumerate(blocks):
            layers: list[nn.Module] = [
                DenseLayer(width + layer * growth, growth) for layer in range(count)
            ]
            width += count * growth
            if stage < len(blocks) - 1:
                layers += [
                    *(nn.BatchNorm2d(width), nn.ReLU()),
                    *(nn.Conv2d(width, width // 2, 1, bias=False), nn.AvgPool2d(2)),
                ]
                width //= 2
            stages.append(nn.Sequential(*layers))
        self.stages = nn.ModuleList(stages)
        self.head = nn.Linear(width, classes)

    def forward(self, images: Any, labels: Any) -> Any:
        """Return the loss."""
        x = self.stem(images)
        for stage in self.stages:
            x = self.run(stage, x)
        return F.cross_entropy(self.head(F.relu(x).mean((2, 3))), labels)


class InvertedResidual(nn.Module):
    """MobileNetV2's block: widen, filter each channel by itself, narrow; a shortcut where it fits.

    ReLU stands for the paper's ReLU6, which differs in one clamp.
    """

    def __init__(self, inputs: int, outputs: int, *, expansion: int, stride: int) -> None:
        super().__init__()
        wide = expansion * inputs
        self.has_shortcut = stride == 1 and inputs == outputs
        self.layers = nn.Sequential(
            *([conv_norm(inputs, wide, 1)] if expansion > 1 else []),
            conv_norm(wide, wide, 3, stride=stride, groups=wide),
            nn.Conv2d(wide, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )

    def forward(self, x: Any) -> Any:
        """Return the block's output."""
        return x + self.layers(x) if self.has_shortcut else self.layers(x)


class MobileNet(Checkpointed):
    """MobileNetV2; its stages are (expansion, channels, blocks, stride), as in the paper."""

    def __init__(
        self,
        *,
        stages: tuple[tuple[int, int, int, int], ...],
        stem: int,
        head: int,
        classes: int,
    ) -> None:
        super().__init__()
        self.stem = conv_norm(3, stem, 3, stride=2)
        inputs, parts = stem, []
        for expansion, channels, count, stride in stages:
            blocks = []
            for block in range(count):
                step = stride if block == 0 else 1
                blocks.append(InvertedResidual(inputs, channels, expansion=expansion, stride=step))
                inputs = channels
            parts.append(nn.Sequential(*blocks))
        self.stages = nn.ModuleList(parts)
        self.top = conv_norm(inputs, head, 1)
        self.head = nn.Linear(head, classes)

    def forward(self, images: Any, labels: Any) -> Any:
        """Return the loss."""
        x = self.stem(images)
        for stage in self.stages:
            x = self.run(stage, x)
        x = F.dropout(self.top(x).mean((2, 3)), 0.2, self.training)
        return F.cross_entropy(self.head(x), labels)


class UNet(Checkpointed):
    """U-Net: convolutions down, transposed ones up, with copies across."""

    def __init__(self, *, widths: tuple[int, ...], classes: int) -> None:
        super().__init__()
        pairs = list(zip((3, *widths), widths, strict=False))
        self.down = nn.ModuleList(_double(a, b) for a, b in pairs)
        self.grow = nn.ModuleList(
            nn.ConvTranspose2d(b, a, 2, stride=2) for a, b in reversed(pairs[1:])
        )
        self.up = nn.ModuleList(_double(2 * a, a) for a, _ in reversed(pairs[1:]))
        self.head = nn.Conv2d(widths[0], classes, 1)

    def forward(self, images: Any, labels: Any) -> Any:
        """Return the loss per pixel."""
        x, kept = images, []
        for level, part in enumerate(self.down):
            x = self.run(part, x if level == 0 else F.max_pool2d(x, 2))
            kept.append(x)
        for grow, part, copy in zip(self.grow, self.up, kept[-2::-1], strict=True):
            x = self.run(part, torch.cat([copy, grow(x)], 1))
        return F.cross_entropy(self.head(x), labels)


def _double(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(conv_norm(inputs, outputs, 3), conv_norm(outputs, outputs, 3))
