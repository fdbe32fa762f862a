"""A drawn job and one of its sides in, a training that runs step by step out.

Plain PyTorch: nothing of Foretrace is imported here, nor by what this imports.
"""

from __future__ import annotations

import re
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.checkpoint import checkpoint

from benchmarks.truth.loading import make_loader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.truth.spec import DrawnJob, Side

MODULES = {
    "transformers": "benchmarks.truth.nets.pretrainable",
    "vision": "benchmarks.truth.nets.vision",
    "loop": "benchmarks.truth.nets.loops",
}
"""Each has ``build(architecture, sizes)``, which returns `Parts`."""
IMAGE_DIMENSIONS = 4
RATES = {"adam": 1e-4, "adamw": 1e-4, "sgd": 1e-3, "adagrad": 1e-3, "sparse_adam": 1e-4}

Batch = tuple[Any, ...]


def _nothing(*_given: object) -> None:
    """Do nothing."""


@dataclass
class Parts:
    """What a job consists of before it is known how it is trained.

    ``sample`` makes a number of samples; each tensor of a batch has them in its first dimension.
    ``groups`` splits the parameters among optimizers, as (parameters, kind); a kind of "" is the
    job's own. A job that trains otherwise than by one loss has a ``step`` of its own.
    """

    model: Any
    loss: Callable[[Batch], Any]
    sample: Callable[[int], Batch]
    groups: list[tuple[list[Any], str]] = field(default_factory=list)
    before_update: Callable[[], None] = _nothing
    after_update: Callable[[Batch], None] = _nothing
    step: Callable[[list[Any], Callable[[], Batch], Callable[[], Any]], None] | None = None


@dataclass
class Training:
    """A training: ``step`` is given what fetches a batch, and runs one whole iteration."""

    model: Any
    optimizers: list[Any]
    step: Callable[[Callable[[], Batch]], None]
    batch_size: int
    batch: Batch
    loader: Any = None

    def run(self) -> Callable[[], None]:
        """Return what runs one iteration of a plain loop, fetching included."""
        if self.loader is None:
            return partial(self.step, lambda: self.batch)
        batches = _endless(self.loader)
        return partial(self.step, lambda: next(batches))


def preload(job: DrawnJob) -> None:
    """Import everything that *job* needs, and run nothing of it."""
    home = import_module(MODULES[job.family])
    if job.family == "transformers":
        home.find_class(job.architecture, job.sizes)


def build(job: DrawnJob, side: Side) -> Training:
    """Return *job*, trained as *side* says."""
    torch.manual_seed(0)
    parts = import_module(MODULES[job.family]).build(job.architecture, job.sizes)
    if side.without:
        remove(parts.model, job.removed)
    if side.checkpointing:
        recompute(parts.model, job.blocks)
    samples = job.batch_size * side.batch_factor
    batch = parts.sample(samples)
    if side.channels_last:
        parts.model.to(memory_format=torch.channels_last)
        batch = tuple(turn(part) for part in batch)
    groups = parts.groups or [([p for p in parts.model.parameters() if p.requires_grad], "")]
    optimizers = [
        make_optimizer(kind or job.optimizer, given, fused=side.fused) for given, kind in groups
    ]
    step = partial(_step, parts, optimizers, side)
    loader = make_loader(batch, samples, job, side.workers) if job.workers else None
    return Training(parts.model, optimizers, step, samples, batch, loader)


def _step(parts: Parts, optimizers: list[Any], side: Side, fetch: Callable[[], Batch]) -> None:
    """Run one iteration."""
    autocast: Any = partial(torch.autocast, "cpu", torch.bfloat16) if side.amp else nullcontext
    turned: Callable[[], Batch] = (
        (lambda: tuple(map(turn, fetch()))) if side.channels_last else fetch
    )
    if parts.step is not None:
        parts.step(optimizers, turned, autocast)
        return
    for optimizer in optimizers:
        optimizer.zero_grad()
    for _ in range(side.accumulation):
        batch = turned()
        with autocast():
            loss = parts.loss(batch)
        (loss / side.accumulation if side.accumulation > 1 else loss).backward()
    parts.before_update()
    for optimizer in optimizers:
        optimizer.step()
    parts.after_update(batch)


def make_optimizer(kind: str, parameters: list[Any], *, fused: bool) -> Any:
    """Return an optimizer as torch makes it for a CPU, or its fused form where it has one."""
    options: dict[str, Any] = {"lr": RATES[kind]}
    if kind == "sparse_adam":
        return torch.optim.SparseAdam(parameters, **options)
    classes = {
        "adam": torch.optim.Adam,
        "adamw": torch.optim.AdamW,
        "sgd": partial(torch.optim.SGD, momentum=0.9),
        "adagrad": torch.optim.Adagrad,
    }
    return classes[kind](parameters, **options, **({"fused": True} if fused else {}))


def turn(part: Any) -> Any:
    """Return a batch of images in NHWC; anything else as it is."""
    is_image = part.dim() == IMAGE_DIMENSIONS and part.is_floating_point()
    return part.contiguous(memory_format=torch.channels_last) if is_image else part


def remove(model: Any, path: str) -> None:
    """Take the module at *path*, an entry of a list, out of *model*."""
    parent, _, name = path.rpartition(".")
    del model.get_submodule(parent)[int(name)]


def recompute(model: Any, pattern: str) -> None:
    """Let every module whose path matches *pattern* forget its activations until backward."""
    for path, module in list(model.named_modules()):
        if re.fullmatch(pattern, path):
            module.forward = partial(checkpoint, module.forward, use_reentrant=False)


def _endless(loader: Any) -> Iterator[Batch]:
    while True:
        for batch in loader:
            yield tuple(batch)
