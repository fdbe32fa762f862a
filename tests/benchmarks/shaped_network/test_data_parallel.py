"""Data-parallel and fully sharded training, in a group of one: buckets, bytes, hooks."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn.parallel import DistributedDataParallel  # noqa: E402 - needs torch

from benchmarks.shaped_network import data_parallel  # noqa: E402 - same
from benchmarks.shaped_network.models import EXAMPLES  # noqa: E402 - same
from foretrace.tracer.lab.network.party import Party  # noqa: E402 - same

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def party(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Party]:
    """Give a group of one rank, torch's default group, as a rank's process has it."""
    import torch.distributed as dist

    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    for name in ("conv", "gpt", "wide"):
        monkeypatch.setitem(EXAMPLES, name, replace(EXAMPLES[name], samples=2))
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch announces its own changes
        yield Party(0, 1, 0, dist.group.WORLD)
    dist.destroy_process_group()


def test_buckets_are_those_of_the_second_iteration(party: Party) -> None:
    """Five of ``conv`` with 1 MiB each, closed once they are that full; a tensor is never split."""
    training = data_parallel.ddp("conv", party, cap_mb=1)
    steps, forwards = training.run([3], 0)

    sizes = training.facts()["bucket_bytes"]
    assert [round(size / 1024) for size in sizes] == [2406, 2306, 1154, 1083, 4]
    assert len(steps) == len(forwards) == 3
    assert all(0 < forward < step for step, forward in zip(steps, forwards, strict=True))


def test_the_default_has_a_small_first_bucket(party: Party) -> None:
    """1 MiB for the first, 25 for the others; with a cap given, one bucket holds ``gpt``."""
    default, capped = (data_parallel.ddp("gpt", party, cap_mb=cap) for cap in (None, 25))
    for training in (default, capped):
        training.run([3], 0)

    assert default.facts()["bucket_bytes"] == [1_544_000, 8_704_512]
    assert capped.facts()["bucket_bytes"] == [1_544_000 + 8_704_512]


@pytest.mark.parametrize("compression", [None, "fp16", "powersgd"])
def test_bytes_by_the_ring_formula(party: Party, compression: str | None) -> None:
    """Four ranks send one and a half times the gradients, half of that in fp16."""
    training = data_parallel.ddp("conv", party, cap_mb=25, compression=compression)
    training.run([4], 0)

    size = training.facts()["bucket_bytes"][0]
    assert data_parallel._ring_bytes(size, 4) == 1.5 * size
    assert training.sent_bytes == (None if compression == "powersgd" else 0)  # one rank sends none


def test_accumulation_synchronises_once(party: Party, monkeypatch: pytest.MonkeyPatch) -> None:
    """All but the last of three passes are made under ``no_sync``."""
    passes: list[bool] = []
    forward = DistributedDataParallel.forward

    def counted(wrapped: Any, *inputs: Any) -> Any:
        passes.append(wrapped.require_backward_grad_sync)
        return forward(wrapped, *inputs)

    monkeypatch.setattr(DistributedDataParallel, "forward", counted)
    data_parallel.ddp("conv", party, accumulation=3).run([1], 0)

    assert passes == [False, False, True]


def test_only_the_slow_rank_sleeps(party: Party, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 1 is slow unless another is named."""
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    data_parallel.ddp("conv", party, sleep_ms=50).run([1], 0)
    data_parallel.ddp("conv", party, sleep_ms=50, slow_rank=0).run([1], 0)

    assert slept == [0.0, 0.05]


def test_fully_sharded_layers_are_gathered_twice(party: Party) -> None:
    """One rank has nothing to gather; the steps run, and every layer is a unit."""
    pytest.importorskip("torch", "2.6", reason="fully_shard has another place before 2.6")
    training = data_parallel.fsdp("wide", party)

    assert len(training.run([2], 0)[0]) == 2
    assert training.sent_bytes == 0
    assert training.clock is None
    network = training.step.__self__.network  # type: ignore[attr-defined]
    assert all(type(layer).__name__.startswith("FSDP") for layer in network.layers)


def test_every_planned_training_exists() -> None:
    """A plan names only what can be run."""
    from benchmarks.shaped_network.plan import PLAN

    wanted = {setup.training for group in PLAN for setup in group.setups if setup.trains}
    assert wanted <= set(data_parallel.TRAININGS)
