"""Gradient accumulation: k batches, one update, and the sums in between."""

from __future__ import annotations

from foretrace.graph.check import check
from foretrace.graph.literal import literal
from foretrace.replaying.replay import replay
from foretrace.transforms.batching.gradient_accumulation import gradient_accumulation
from tests.support.jobs.simple import META, cpu_job, gpu_job


def test_accumulation_is_k_batches_and_one_update() -> None:
    """3 x (load 50 + three operators 300) + 200 of update: sums on a CPU cost what they spare."""
    graph = cpu_job(steps=1)
    changed = check(gradient_accumulation(graph, k=3))

    assert replay(changed).step_ns == 3 * 350_000 + 200_000
    assert changed.meta.batch_size == 96


def test_accumulation_on_a_device_adds_by_kernels() -> None:
    """Each backward pass but the first ends with an addition and its launch."""
    changed = check(gradient_accumulation(gpu_job(steps=2), k=3))

    assert changed.tasks["name"].str.contains("accumulation .predicted. add").sum() == 4
    assert (changed.tasks["name"] == "gradient accumulation (predicted)").sum() == 4
    assert replay(changed).step_ns > 2.5 * replay(gpu_job(steps=2)).step_ns / 2


def test_what_little_follows_the_update_is_no_batch() -> None:
    """The end of the step's range stays with the update and is not repeated."""
    graph = literal(
        [("fwd", "host", 0, 90, "forward"), ("bwd", "host", 0, 90, "backward"),
         ("update", "host", 0, 9, "optimizer"), ("end", "host", 0, 5, None)]
    )  # fmt: skip
    changed = check(gradient_accumulation(graph, k=2))

    assert changed.tasks["name"].tolist() == ["fwd", "bwd", "update", "end", "fwd", "bwd"]
    assert "gradient_accumulation: adding gradients costs what it spares" in changed.notes


def test_a_model_is_evaluated_once_per_update() -> None:
    """A forward pass behind the update trains nothing, where one went before the backward pass."""
    graph = literal(
        [("fwd", "host", 0, 90, "forward"), ("bwd", "host", 0, 90, "backward"),
         ("update", "host", 0, 9, "optimizer"), ("load", "host", 0, 50, "load"),
         ("evaluate", "host", 0, 90, "forward")]
    )  # fmt: skip
    changed = check(gradient_accumulation(graph, k=2))

    assert changed.tasks["name"].tolist() == [
        "fwd", "bwd", "update", "load", "evaluate", "fwd", "bwd", "load",
    ]  # fmt: skip


def test_a_step_may_begin_with_its_backward_pass() -> None:
    """What is computed behind the update is then the forward pass of the next one."""
    graph = literal(
        [("bwd", "host", 0, 90, "backward"), ("update", "host", 0, 9, "optimizer"),
         ("fwd", "host", 0, 90, "forward")]
    )  # fmt: skip
    changed = check(gradient_accumulation(graph, k=2))

    assert changed.tasks["name"].tolist() == ["bwd", "update", "fwd", "bwd", "fwd"]


def test_what_starts_the_backward_pass_belongs_to_every_batch() -> None:
    """Gradients zeroed between forward and backward do not cut the seed of the backward off."""
    graph = literal(
        [("fwd", "host", 0, 90, "forward"), ("zero_grad", "host", 0, 9, "optimizer"),
         ("seed", "host", 0, 5, "forward"), ("bwd", "host", 1, 90, "backward")],
        [(2, 3, "fork", 1)],
    )  # fmt: skip
    changed = check(gradient_accumulation(graph, k=2))

    assert changed.tasks["name"].tolist() == [
        "fwd", "zero_grad", "seed", "bwd", "fwd", "seed", "bwd",
    ]  # fmt: skip


def test_accumulation_without_known_update_kernels_says_so() -> None:
    """An update that is no kernel leaves the additions uncounted."""
    graph = literal(
        [("bwd", "kernel", 0, 9, "backward"), ("copy", "memcpy", 0, 9, "optimizer")], meta=META
    )

    assert "adding gradients is not counted" in gradient_accumulation(graph, k=2).notes[0]
