"""The network for graphs, torch alone: what neighbours send is gathered and added by index.

As in `zoo_layers`, ``forward(*batch)`` returns the loss.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - the field's name for it

from foretrace.tracer.lab.zoo.vision import Checkpointed


class Isomorphism(nn.Module):
    """A layer of GIN: each node adds what its neighbours send to itself, then an MLP."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.own = nn.Parameter(torch.zeros(1))
        self.mlp = nn.Sequential(
            *(nn.Linear(inputs, width), nn.BatchNorm1d(width), nn.ReLU()),
            *(nn.Linear(width, width), nn.ReLU()),
        )

    def forward(self, nodes: Any, source: Any, target: Any) -> Any:
        """Return the new features of all nodes."""
        received = torch.zeros_like(nodes).index_add(0, target, nodes[source])
        return self.mlp((1 + self.own) * nodes + received)


class GraphNetwork(Checkpointed):
    """GIN, after Xu and others: classifies graphs that are batched as one graph of many parts."""

    def __init__(self, *, layers: int, features: int, width: int, nodes: int, classes: int) -> None:
        super().__init__()
        self.nodes = nodes
        sizes = (features, *(width for _ in range(layers - 1)))
        self.layers = nn.ModuleList(Isomorphism(inputs, width) for inputs in sizes)
        self.head = nn.Linear(width, classes)

    def forward(self, features: Any, edges: Any, labels: Any) -> Any:
        """Return the loss; *edges* are (graphs, 2, edges per graph), numbered within a graph."""
        graphs = len(features)
        first = torch.arange(graphs, device=edges.device) * self.nodes
        source, target = (edges + first[:, None, None]).transpose(0, 1).flatten(1)
        x = features.flatten(0, 1)
        for layer in self.layers:
            x = self.run(layer, x, source, target)
        pooled = x.view(graphs, self.nodes, -1).mean(1)
        return F.cross_entropy(self.head(F.dropout(pooled, 0.5, self.training)), labels)
