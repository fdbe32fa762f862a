"""Networks of torchvision and transformers in the form of the zoo: ``forward`` gives the loss."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from torch import nn
from torch.nn import functional as F  # noqa: N812 - the field's name for it

from foretrace.tracer.lab.zoo.named import configure


class Classifier(nn.Module):
    """A classifier of torchvision with random weights."""

    def __init__(self, *, name: str, classes: int) -> None:
        super().__init__()
        models = import_module("torchvision.models")
        self.network = models.get_model(name, weights=None, num_classes=classes)

    def forward(self, images: Any, labels: Any) -> Any:
        """Return the loss of the last head; auxiliary ones are left out."""
        outputs = self.network(images)
        return F.cross_entropy(getattr(outputs, "logits", outputs), labels)


class Pretrainable(nn.Module):
    """A network of transformers, built from a configuration with random weights."""

    def __init__(self, *, name: str, settings: dict[str, Any]) -> None:
        super().__init__()
        chosen = configure(name, settings)
        self.network = chosen.head.from_config(chosen.config)

    def forward(self, inputs: Any, labels: Any) -> Any:
        """Return the loss that the network itself defines; *inputs* are words or images."""
        return self.network(inputs, labels=labels).loss
