"""Models by name: of this zoo, or of torchvision and transformers, built from configurations.

Nothing is downloaded: weights and data are random. ``torchvision:resnet18`` is a classifier of
images; ``transformers:bert`` a type of model that the library lists, with its first head that
trains on words or images.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from foretrace.errors import RecordError
from foretrace.tracer.lab.zoo.models import BY_NAME, Model, ModelShape
from foretrace.util.import_target import first_line

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = "foretrace.tracer.lab.zoo.wrappers"
CLASSES = 1000
IMAGE, SMALL_IMAGE = 224, 64
FIXED = {"inception_v3": 299, "maxvit": 224, "vit_": 224}
"""Images that a network takes and no others, in pixels, by how its name begins."""
HEADS = ("MaskedLM", "CausalLM", "Seq2SeqLM", "ImageClassification")
LENGTH, SMALL_LENGTH = 128, 32
SMALL_LAYERS = 2


def find_model(name: str) -> Model:
    """Return the model of this zoo, of torchvision or of transformers that is called *name*.

    Raises
    ------
    RecordError
        There is none, or the library that has it is not installed or cannot be used.

    Examples
    --------
    >>> find_model("gnn").data
    'graphs'
    """
    if name in BY_NAME:
        return BY_NAME[name]
    library, colon, model = name.partition(":")
    if not colon or library not in LIBRARIES:
        raise RecordError(
            f"no model is called {name!r}: choose from {', '.join(BY_NAME)}, "
            f"or write {', '.join(f'{each}:MODEL' for each in LIBRARIES)}"
        )
    if find_spec(library) is None:
        raise RecordError(f"{name} needs {library}: pip install {library}")
    try:
        return LIBRARIES[library](name, model)
    except RecordError:
        raise
    except Exception as error:
        text = f"{type(error).__name__}: {first_line(error)}"
        raise RecordError(f"{name}: {library} cannot be used here: {text}") from error


def _torchvision(name: str, model: str) -> Model:
    models = import_module("torchvision.models")
    listed = models.list_models(module=models)
    if model not in listed:
        raise RecordError(f"torchvision has no classifier {model!r}: {', '.join(listed)}")
    needed = next((size for begin, size in FIXED.items() if model.startswith(begin)), None)

    def shape(image: int, samples: int) -> ModelShape:
        data = {"image": needed or image, "classes": CLASSES}
        return ModelShape({"name": model, "classes": CLASSES}, samples, data)

    return Model(name, HERE, "Classifier", "images", shape(IMAGE, 64), shape(SMALL_IMAGE, 4))


def _transformers(name: str, model: str) -> Model:
    configuration = configure(model, {})
    small = configure(model, {"num_hidden_layers": SMALL_LAYERS})
    is_image = hasattr(configuration.config, "image_size")

    def shape(layers: dict[str, int], samples: int, length: int) -> ModelShape:
        data = (
            {"image": configuration.config.image_size, "classes": configuration.config.num_labels}
            if is_image
            else {"length": length, "words": configuration.config.vocab_size}
        )
        return ModelShape({"name": model, "settings": layers}, samples, data)

    few = {"num_hidden_layers": small.config.num_hidden_layers}
    return Model(
        name,
        HERE,
        "Pretrainable",
        "images" if is_image else "tokens",
        shape({}, 16, LENGTH),
        shape(few, 2, SMALL_LENGTH),
    )


@dataclass(frozen=True)
class Configured:
    """A configuration of transformers, and the class whose ``from_config`` makes the network."""

    config: Any
    head: Any


def configure(model: str, settings: dict[str, Any]) -> Configured:
    """Return the type of model *model* with *settings* and its first head that can be trained.

    Raises
    ------
    RecordError
        transformers has no such type, or no head of it is of a kind in `HEADS`.
    """
    transformers = import_module("transformers")
    try:
        config = transformers.AutoConfig.for_model(model, **settings)
    except (ValueError, KeyError):
        raise RecordError(f"transformers has no type of model {model!r}, as bert or gpt2") from None
    for head in HEADS:
        mapping = getattr(transformers, f"AutoModelFor{head}")._model_mapping  # noqa: SLF001 - the library has no public question for it
        if type(config) in mapping:
            return Configured(config, getattr(transformers, f"AutoModelFor{head}"))
    raise RecordError(f"transformers:{model} has no head of {', '.join(HEADS)}")


LIBRARIES: dict[str, Callable[[str, str], Model]] = {
    "torchvision": _torchvision,
    "transformers": _transformers,
}
