"""The models of the accuracy study: each in its published shape, and small enough for one core.

`ZOO` is the list; `Model.network` builds the network and `Model.batch` what it trains on. Nothing
is downloaded: weights and data are random.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from foretrace.tracer.lab.zoo.data import BATCHES

if TYPE_CHECKING:
    from collections.abc import Mapping

VISION = "foretrace.tracer.lab.zoo.vision"
SEQUENCE = "foretrace.tracer.lab.zoo.sequences"
GRAPHS = "foretrace.tracer.lab.zoo.graphs"


@dataclass(frozen=True)
class ModelShape:
    """Arguments of the network, samples per step, and the sizes of a batch."""

    network: Mapping[str, Any]
    batch_size: int
    data: Mapping[str, int]


@dataclass(frozen=True)
class Model:
    """One model of the zoo: where its class stands, its shapes, and what a batch looks like."""

    name: str
    module: str
    cls: str
    data: str  # "images", "pixels", "tokens", "sentences", "vectors", "clicks" or "graphs"
    full: ModelShape
    small: ModelShape

    def shape(self, *, small: bool) -> ModelShape:
        """Return the published shape, or the one for a single CPU core."""
        return self.small if small else self.full

    def network(self, *, small: bool) -> Any:
        """Return a freshly initialised network, in training mode, on the CPU."""
        from importlib import import_module

        return getattr(import_module(self.module), self.cls)(**self.shape(small=small).network)

    def batch(self, samples: int, *, small: bool) -> tuple[Any, ...]:
        """Return one random batch of *samples*, on the CPU."""
        return BATCHES[self.data](samples, **self.shape(small=small).data)


def _transformer(
    name: str,
    full: dict[str, Any],
    small: dict[str, Any],
    batches: tuple[int, int],
    *,
    causal: bool,
) -> Model:
    def shape(sizes: dict[str, Any], batch: int) -> ModelShape:
        data = {"length": sizes["length"], "words": sizes["words"]}
        return ModelShape({**sizes, "causal": causal}, batch, data)

    return Model(
        name, SEQUENCE, "Transformer", "tokens", shape(full, batches[0]), shape(small, batches[1])
    )


def _vision(
    name: str, cls: str, full: dict[str, Any], small: dict[str, Any], sizes: tuple[int, int, int]
) -> Model:
    """Return a classifier: *sizes* are the full batch, the small batch and the small image."""
    module = SEQUENCE if cls == "VisionTransformer" else VISION
    return Model(
        name,
        module,
        cls,
        "images",
        ModelShape({**full, "classes": 1000}, sizes[0], {"image": 224, "classes": 1000}),
        ModelShape({**small, "classes": 100}, sizes[1], {"image": sizes[2], "classes": 100}),
    )


ZOO = (
    _vision(
        "resnet50",
        "ResNet",
        {"blocks": (3, 4, 6, 3), "width": 64},
        {"blocks": (2, 2, 2), "width": 16},
        (64, 20, 64),
    ),
    _vision(
        "vgg19",
        "VGG",
        {
            "counts": (2, 2, 4, 4, 4),
            "widths": (64, 128, 256, 512, 512),
            "hidden": 4096,
            "image": 224,
        },
        {"counts": (1, 1, 2), "widths": (16, 32, 64), "hidden": 2048, "image": 32},
        (64, 20, 32),
    ),
    _vision(
        "densenet121",
        "DenseNet",
        {"blocks": (6, 12, 24, 16), "growth": 32},
        {"blocks": (3, 4, 4), "growth": 12},
        (64, 12, 64),
    ),
    Model(
        "gnmt",
        SEQUENCE,
        "Translation",
        "sentences",
        ModelShape(
            {"layers": 4, "width": 1024, "words": 32000}, 128, {"length": 50, "words": 32000}
        ),
        ModelShape({"layers": 2, "width": 128, "words": 4000}, 16, {"length": 24, "words": 4000}),
    ),
    _transformer(
        "bert-base",
        {"layers": 12, "width": 768, "heads": 12, "words": 30522, "length": 128},
        {"layers": 3, "width": 128, "heads": 4, "words": 4000, "length": 64},
        (32, 4),
        causal=False,
    ),
    _transformer(
        "bert-large",
        {"layers": 24, "width": 1024, "heads": 16, "words": 30522, "length": 128},
        {"layers": 4, "width": 256, "heads": 4, "words": 2000, "length": 32},
        (16, 4),
        causal=False,
    ),
    _transformer(
        "gpt2",
        {"layers": 12, "width": 768, "heads": 12, "words": 50257, "length": 512},
        {"layers": 4, "width": 128, "heads": 4, "words": 4000, "length": 64},
        (8, 4),
        causal=True,
    ),
    _vision(
        "vit-b16",
        "VisionTransformer",
        {"layers": 12, "width": 768, "heads": 12, "patch": 16, "image": 224},
        {"layers": 4, "width": 192, "heads": 3, "patch": 8, "image": 64},
        (64, 4, 64),
    ),
    Model(
        "unet",
        VISION,
        "UNet",
        "pixels",
        ModelShape(
            {"widths": (64, 128, 256, 512, 1024), "classes": 2}, 8, {"image": 256, "classes": 2}
        ),
        ModelShape({"widths": (12, 24, 48), "classes": 2}, 4, {"image": 64, "classes": 2}),
    ),
    Model(
        "dlrm",
        SEQUENCE,
        "DLRM",
        "clicks",
        ModelShape(
            {"tables": 26, "rows": 100_000, "width": 64, "dense": 13, "hidden": (512, 256)},
            2048,
            {"tables": 26, "rows": 100_000, "dense": 13, "bag": 1},
        ),
        ModelShape(
            {"tables": 8, "rows": 10_000, "width": 32, "dense": 13, "hidden": (512, 256)},
            512,
            {"tables": 8, "rows": 10_000, "dense": 13, "bag": 4},
        ),
    ),
    _vision(
        "mobilenet",
        "MobileNet",
        {
            "stages": (
                *((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2)),
                *((6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)),
            ),
            "stem": 32,
            "head": 1280,
        },
        {"stages": ((1, 8, 1, 1), (6, 12, 2, 2), (6, 16, 2, 2)), "stem": 16, "head": 128},
        (96, 12, 64),
    ),
    Model(
        "autoencoder",
        SEQUENCE,
        "Autoencoder",
        "vectors",
        ModelShape({"widths": (3072, 4096, 2048, 1024, 256)}, 2048, {"length": 3072}),
        ModelShape({"widths": (784, 1000, 500, 250, 30)}, 192, {"length": 784}),
    ),
    Model(
        "lstm-lm",
        SEQUENCE,
        "LanguageModel",
        "tokens",
        ModelShape(
            {"layers": 2, "width": 1500, "words": 10_000}, 64, {"length": 35, "words": 10_000}
        ),
        ModelShape({"layers": 2, "width": 160, "words": 4_000}, 12, {"length": 24, "words": 4_000}),
    ),
    Model(
        "transformer",
        SEQUENCE,
        "EncoderDecoder",
        "sentences",
        ModelShape(
            {"layers": 6, "width": 512, "heads": 8, "words": 37_000, "length": 64},
            64,
            {"length": 64, "words": 37_000},
        ),
        ModelShape(
            {"layers": 2, "width": 128, "heads": 4, "words": 2_000, "length": 24},
            6,
            {"length": 24, "words": 2_000},
        ),
    ),
    Model(
        "gnn",
        GRAPHS,
        "GraphNetwork",
        "graphs",
        ModelShape(
            {"layers": 5, "features": 64, "width": 300, "nodes": 32, "classes": 128},
            256,
            {"nodes": 32, "edges": 72, "features": 64, "classes": 128},
        ),
        ModelShape(
            {"layers": 4, "features": 32, "width": 128, "nodes": 24, "classes": 10},
            64,
            {"nodes": 24, "edges": 56, "features": 32, "classes": 10},
        ),
    ),
)

BY_NAME = {model.name: model for model in ZOO}
