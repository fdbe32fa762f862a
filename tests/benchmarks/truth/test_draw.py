"""Drawing: what a seed decides, from trials that are told here."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.truth import draw
from benchmarks.truth.draw import draw_sized

if TYPE_CHECKING:
    from benchmarks.truth.spec import DrawnJob

CHANCE = random.Random(3)  # noqa: S311 - no secret
WORKS = ["amp", "gradient_accumulation", "channels_last", "fused_optimizer"]


def _found(job: DrawnJob) -> dict[str, Any]:
    return {
        "seconds": 0.1,
        "batch_size": 8,
        "blocks": "",
        "removed": "",
        "works": list(WORKS),
        "images": job.family == "vision",
    }


def test_a_seed_decides_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same seed, the same list; a third of each family's architectures is held out."""
    pytest.importorskip("transformers")
    monkeypatch.setattr(draw, "TYPES", 6)
    jobs = draw.draw(1, _found)
    assert jobs == draw.draw(1, _found)
    assert jobs != draw.draw(2, _found)
    by_family = {(job.family, job.architecture): job.held_out for job in jobs}
    assert len(jobs) == len(by_family) + draw.SECOND
    for family in ("transformers", "vision", "loop"):
        held_out = [is_held for (of, _), is_held in by_family.items() if of == family]
        assert sum(held_out) == round(len(held_out) / 3)


def test_what_does_not_train_is_left_out() -> None:
    """After a few other sizes."""
    tried: list[DrawnJob] = []
    assert draw_sized(CHANCE, "vision", "fcn", {}, tried.append) is None
    assert len(tried) == draw.TRIES


def test_changes_are_those_that_apply() -> None:
    """Layouts of images alone, accumulation of one loss alone, workers where a loader is."""
    chance = CHANCE
    loops = [draw_sized(chance, "loop", "gan", {}, _found) for _ in range(20)]
    images = [draw_sized(chance, "vision", "fcn", {}, _found) for _ in range(20)]
    for job in filter(None, loops):
        assert "gradient_accumulation" not in job.changes
        assert "channels_last" not in job.changes
    for job in filter(None, images):
        assert "channels_last" in job.changes
        assert ("dataloader" in job.changes) == bool(job.workers)
        assert not (job.workers and "cpu_cores" in job.changes)
        assert "+" in job.changes[-1]
