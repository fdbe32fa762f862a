"""The networks for sequences, vectors and tables: transformers, LSTMs, an autoencoder, DLRM.

Torch alone.

As in `zoo_layers`, ``forward(*batch)`` returns the loss.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - the field's name for it

from foretrace.tracer.lab.zoo.vision import Checkpointed


class TransformerBlock(nn.Module):
    """A transformer block; ``norm_first`` is GPT's and ViT's order, else BERT's."""

    def __init__(self, width: int, heads: int, *, causal: bool, norm_first: bool) -> None:
        super().__init__()
        self.heads, self.causal, self.norm_first = heads, causal, norm_first
        self.project = nn.Linear(width, 3 * width)
        self.merge = nn.Linear(width, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1)
        )

    def forward(self, x: Any) -> Any:
        """Return the block's output."""
        if self.norm_first:
            x = x + self.attend(self.norms[0](x))
            return x + self.mlp(self.norms[1](x))
        x = self.norms[0](x + self.attend(x))
        return self.norms[1](x + self.mlp(x))

    def attend(self, x: Any) -> Any:
        """Return what self-attention adds to *x*."""
        batch, length, width = x.shape
        shape = (batch, length, 3, self.heads, width // self.heads)
        q, k, v = self.project(x).view(shape).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return F.dropout(self.merge(mixed.transpose(1, 2).reshape(x.shape)), 0.1, self.training)


class Transformer(Checkpointed):
    """Tokens in, a prediction for every token: BERT's shape, or GPT-2's when causal."""

    def __init__(
        self, *, layers: int, width: int, heads: int, words: int, length: int, causal: bool
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Embedding(length, width)
        self.norm = nn.LayerNorm(width)
        self.blocks = nn.ModuleList(
            TransformerBlock(width, heads, causal=causal, norm_first=causal) for _ in range(layers)
        )
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight  # tied, as both originals have it

    def forward(self, tokens: Any, labels: Any) -> Any:
        """Return the loss over all tokens."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.words(tokens) + self.places(places)
        for block in self.blocks:
            x = self.run(block, x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), labels.flatten())


class VisionTransformer(Checkpointed):
    """ViT; ``layers=12, width=768, heads=12, patch=16`` is ViT-B/16."""

    def __init__(
        self, *, layers: int, width: int, heads: int, patch: int, image: int, classes: int
    ) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.first = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.zeros(1, (image // patch) ** 2 + 1, width))
        self.blocks = nn.ModuleList(
            TransformerBlock(width, heads, causal=False, norm_first=True) for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, images: Any, labels: Any) -> Any:
        """Return the loss."""
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(len(x), -1, -1).to(x.dtype), x], 1) + self.places
        for block in self.blocks:
            x = self.run(block, x)
        return F.cross_entropy(self.head(self.norm(x[:, 0])), labels)


class Translation(Checkpointed):
    """Two stacks of LSTMs with attention between them, after GNMT."""

    def __init__(self, *, layers: int, width: int, words: int) -> None:
        super().__init__()
        self.source = nn.Embedding(words, width)
        self.target = nn.Embedding(words, width)
        self.first = nn.LSTM(width, width // 2, bidirectional=True, batch_first=True)
        self.encoder = nn.LSTM(width, width, num_layers=layers - 1, batch_first=True)
        self.decoder = nn.LSTM(width, width, num_layers=layers, batch_first=True)
        self.mix = nn.Linear(2 * width, width)
        self.head = nn.Linear(width, words)

    def forward(self, source: Any, target: Any, labels: Any) -> Any:
        """Return the loss over all words of the target."""
        x, _ = self.first(F.dropout(self.source(source), 0.2, self.training))
        memory, _ = self.run(self.encoder, x)
        x, _ = self.run(self.decoder, F.dropout(self.target(target), 0.2, self.training))
        weights = torch.softmax(x @ memory.transpose(1, 2) / memory.shape[2] ** 0.5, -1)
        x = torch.tanh(self.mix(torch.cat([x, weights @ memory], -1)))
        return F.cross_entropy(self.head(x).flatten(0, 1), labels.flatten())


class EncoderDecoder(Checkpointed):
    """The Transformer for translation; ``layers=6, width=512, heads=8`` is its base form.

    Places are learned, words are tied, as the paper compares and does.
    """

    def __init__(self, *, layers: int, width: int, heads: int, words: int, length: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Embedding(length, width)
        sizes = {"d_model": width, "nhead": heads, "dim_feedforward": 4 * width}
        self.encoder = nn.ModuleList(
            nn.TransformerEncoderLayer(**sizes, batch_first=True) for _ in range(layers)
        )
        self.decoder = nn.ModuleList(
            nn.TransformerDecoderLayer(**sizes, batch_first=True) for _ in range(layers)
        )
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight

    def forward(self, source: Any, target: Any, labels: Any) -> Any:
        """Return the loss over all words of the target."""
        memory = self.embed(source)
        for layer in self.encoder:
            memory = self.run(layer, memory)
        x, length = self.embed(target), target.shape[1]
        later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        for layer in self.decoder:
            x = self.run(layer, x, memory, later)
        return F.cross_entropy(self.head(x).flatten(0, 1), labels.flatten())

    def embed(self, tokens: Any) -> Any:
        """Return words and places added."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return F.dropout(self.words(tokens) + self.places(places), 0.1, self.training)


class LanguageModel(Checkpointed):
    """LSTM layers that predict the next word, after Zaremba and others; words are tied."""

    def __init__(self, *, layers: int, width: int, words: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.layers = nn.ModuleList(nn.LSTM(width, width, batch_first=True) for _ in range(layers))
        self.head = nn.Linear(width, words)
        self.head.weight = self.words.weight

    def forward(self, tokens: Any, labels: Any) -> Any:
        """Return the loss over all tokens."""
        x = F.dropout(self.words(tokens), 0.5, self.training)
        for layer in self.layers:
            x = F.dropout(self.run(layer, x)[0], 0.5, self.training)
        return F.cross_entropy(self.head(x).flatten(0, 1), labels.flatten())


class Autoencoder(Checkpointed):
    """An MLP down to a code and back up, after Hinton and Salakhutdinov."""

    def __init__(self, *, widths: tuple[int, ...]) -> None:
        super().__init__()
        self.halves = nn.ModuleList([_mlp(*widths), _mlp(*reversed(widths))])

    def forward(self, vectors: Any) -> Any:
        """Return the loss of the reconstruction."""
        x = vectors
        for half in self.halves:
            x = self.run(half, x)
        return F.mse_loss(x.float(), vectors)


class DLRM(Checkpointed):
    """Recommendation: many embedding tables, their dot products, two small MLPs."""

    def __init__(
        self, *, tables: int, rows: int, width: int, dense: int, hidden: tuple[int, ...]
    ) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables))
        self.bottom = _mlp(dense, *hidden, width)
        self.top = _mlp(width + (tables + 1) * tables // 2, *hidden, 1)

    def forward(self, dense: Any, sparse: Any, clicks: Any) -> Any:
        """Return the loss; *sparse* is (tables, batch, ids per bag)."""
        x = self.run(self.bottom, dense)
        vectors = [x, *(table(ids) for table, ids in zip(self.tables, sparse, strict=True))]
        stacked = torch.stack([vector.to(x.dtype) for vector in vectors], 1)
        rows, columns = torch.triu_indices(len(vectors), len(vectors), 1, device=x.device)
        products = (stacked @ stacked.transpose(1, 2))[:, rows, columns]
        scores = self.run(self.top, torch.cat([x, products], 1)).squeeze(1)
        return F.binary_cross_entropy_with_logits(scores.float(), clicks)


def _mlp(*widths: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])
