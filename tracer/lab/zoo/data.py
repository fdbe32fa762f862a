"""What the models of the zoo train on: `BATCHES` makes one random batch per kind of data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def _images(samples: int, *, image: int, classes: int) -> tuple[Any, ...]:
    import torch

    return torch.randn(samples, 3, image, image), torch.randint(classes, (samples,))


def _pixels(samples: int, *, image: int, classes: int) -> tuple[Any, ...]:
    import torch

    return torch.randn(samples, 3, image, image), torch.randint(classes, (samples, image, image))


def _tokens(samples: int, *, length: int, words: int) -> tuple[Any, ...]:
    import torch

    return tuple(torch.randint(words, (samples, length)) for _ in range(2))


def _sentences(samples: int, *, length: int, words: int) -> tuple[Any, ...]:
    import torch

    return tuple(torch.randint(words, (samples, length)) for _ in range(3))


def _vectors(samples: int, *, length: int) -> tuple[Any, ...]:
    import torch

    return (torch.rand(samples, length),)


def _clicks(samples: int, *, tables: int, rows: int, dense: int, bag: int) -> tuple[Any, ...]:
    import torch

    sparse = torch.randint(rows, (tables, samples, bag))
    return torch.randn(samples, dense), sparse, torch.randint(2, (samples,)).float()


def _graphs(
    samples: int, *, nodes: int, edges: int, features: int, classes: int
) -> tuple[Any, ...]:
    import torch

    ends = torch.randint(nodes, (samples, 2, edges))
    return torch.randn(samples, nodes, features), ends, torch.randint(classes, (samples,))


BATCHES: dict[str, Callable[..., tuple[Any, ...]]] = {
    "images": _images,
    "pixels": _pixels,
    "tokens": _tokens,
    "sentences": _sentences,
    "vectors": _vectors,
    "clicks": _clicks,
    "graphs": _graphs,
}
