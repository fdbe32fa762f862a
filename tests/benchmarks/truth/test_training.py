"""Jobs of the truth set: built, changed and stepped, each for one small step."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.truth.nets_listed import LOOPS, VISION
from benchmarks.truth.spec import BASE, DrawnJob, Side, Sizes, sides_of

torch = pytest.importorskip("torch")

from benchmarks.truth.training import build  # noqa: E402 - needs torch

if TYPE_CHECKING:
    from collections.abc import Iterator

TINY = Sizes(32, 2, 16)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Leave nothing of such small steps to threads that wait for each other."""
    usual = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(usual)


def _job(family: str, architecture: str, **more: Any) -> DrawnJob:
    job = DrawnJob(architecture, family, architecture, False, 1, 3, TINY)
    return replace(job, **more)


@pytest.mark.parametrize("architecture", VISION)
def test_networks_for_images_learn(architecture: str) -> None:
    """A step changes weights."""
    _step_changes_weights(_job("vision", architecture, sizes=Sizes(32, 2, 32)))


@pytest.mark.parametrize("architecture", LOOPS)
def test_loops_learn(architecture: str) -> None:
    """A step changes weights, whatever else the loop does."""
    _step_changes_weights(_job("loop", architecture))


def _step_changes_weights(job: DrawnJob) -> None:
    training = build(job, Side(BASE))
    before = [parameter.detach().clone() for parameter in training.model.parameters()]
    training.run()()
    after = training.model.parameters()
    assert any(not torch.equal(old, new) for old, new in zip(before, after, strict=True))


def test_types_of_transformers_are_built_small() -> None:
    """A type by name, with the head for its task, at the drawn sizes."""
    pytest.importorskip("transformers")
    job = _job("transformers", "bert", sizes=Sizes(64, 2, 16, {"task": "masked"}))
    training = build(job, Side(BASE))
    training.run()()
    assert training.model.config.hidden_size == 64
    assert training.model.config.num_hidden_layers == 2
    assert sum(p.numel() for p in training.model.parameters()) < 1_000_000


def test_changes_are_made() -> None:
    """Each side trains in the way that it says."""
    job = _job(
        "vision",
        "regnet",
        blocks=r"body\.\d+",
        removed="body.2",
        changes=(
            *("batch_size", "amp", "fused_optimizer", "channels_last", "gradient_accumulation"),
            *("activation_checkpoint", "remove_modules"),
        ),
    )
    made = {side.name: build(job, side) for side in sides_of(job)}
    for training in made.values():
        training.run()()
    assert made["batch_size"].batch[0].shape[0] == 6
    assert made["fused_optimizer"].optimizers[0].defaults["fused"]
    assert made["channels_last"].batch[0].is_contiguous(memory_format=torch.channels_last)
    assert len(made["remove_modules"].model.body) == len(made[BASE].model.body) - 1


@pytest.mark.parametrize(
    ("change", "calls"),
    [(BASE, 1), ("gradient_accumulation", 3)],
)
def test_accumulated_steps_fetch_every_batch(change: str, calls: int) -> None:
    """A step of k batches fetches k times and learns what one of all their samples would."""
    job = _job("loop", "frozen", accumulation=3, changes=("gradient_accumulation",))
    training = build(job, {side.name: side for side in sides_of(job)}[change])
    fetched: list[int] = []

    def fetch() -> tuple[Any, ...]:
        fetched.append(1)
        return training.batch

    training.step(fetch)
    assert len(fetched) == calls


def test_loaders_cost_what_was_drawn() -> None:
    """A job with a loader fetches its batches from it, samples in order."""
    job = _job("loop", "frozen", workers=1, load_us=10, load_rounds=1)
    training = build(job, Side(BASE))
    first = next(iter(training.loader))
    assert torch.equal(first[0], training.batch[0])
    training.run()()


def test_tables_are_left_to_their_own_optimizer() -> None:
    """A sparse optimizer has no fused form; the other one takes it."""
    training = build(_job("loop", "sparse"), Side("fused_optimizer", fused=True))
    kinds = [type(optimizer).__name__ for optimizer in training.optimizers]
    assert kinds == ["SparseAdam", "Adam"]
    training.run()()
