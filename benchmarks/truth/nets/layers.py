"""Layers that several networks of the truth set share."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - the field's name for it


def conv(
    inputs: int,
    outputs: int,
    kernel: int = 3,
    *,
    stride: int = 1,
    groups: int = 1,
    dilation: int = 1,
) -> nn.Sequential:
    """Return convolution, batch norm and SiLU."""
    padding = dilation * (kernel // 2)
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, padding, dilation, groups, bias=False),
        nn.BatchNorm2d(outputs),
        nn.SiLU(),
    )


class Residual(nn.Module):
    """Adds its input to what its layers make of it."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Any) -> Any:
        """Return the sum."""
        return x + self.layers(x)


class Branches(nn.Module):
    """Puts what several branches make of its input side by side."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Any) -> Any:
        """Return the channels of all branches."""
        return torch.cat([branch(x) for branch in self.branches], 1)


class Squeeze(nn.Module):
    """Squeeze and excitation: channels are weighted by what the whole image shows."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.down = nn.Conv2d(channels, max(channels // 4, 4), 1)
        self.up = nn.Conv2d(max(channels // 4, 4), channels, 1)

    def forward(self, x: Any) -> Any:
        """Return the weighted image."""
        return x * torch.sigmoid(self.up(F.silu(self.down(x.mean((2, 3), keepdim=True)))))


class Attention(nn.Module):
    """A block of a transformer: attention and an MLP, each after a norm."""

    def __init__(self, width: int, heads: int, *, causal: bool = False) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Any) -> Any:
        """Return the new tokens, (samples, tokens, width)."""
        samples, tokens, width = x.shape
        parts = self.qkv(self.first(x)).view(samples, tokens, 3, self.heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        x = x + self.out(mixed.transpose(1, 2).reshape(samples, tokens, width))
        return x + self.mlp(self.second(x))


def mlp(*widths: int) -> nn.Sequential:
    """Return linear layers with ReLU between them."""
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])
