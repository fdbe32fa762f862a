"""The jobs that are spread over ranks: their sizes, their cuts, their clocks."""

from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from benchmarks.shaped_network import chains, models  # noqa: E402 - needs torch


@pytest.mark.parametrize("name", models.EXAMPLES)
def test_every_example_trains_and_can_be_cut(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """5 to 20 MB of gradients; the halves one after another give what the whole gives."""
    monkeypatch.setitem(models.EXAMPLES, name, replace(models.EXAMPLES[name], samples=2))
    job = models.lone(name)
    assert 5e6 < job.gradient_bytes < 20e6

    job.step()
    assert job.clock.take() > 0
    assert job.clock.take() == 0
    assert all(p.grad is not None for p in job.network.parameters())

    inputs, labels = job.batch
    job.network.eval()
    layers, cut = job.network.layers, models.EXAMPLES[name].cut
    halves = layers[cut:](layers[:cut](inputs))
    torch.testing.assert_close(chains.loss(halves, labels), job.network(inputs, labels))


def test_a_job_is_the_same_on_every_rank() -> None:
    """Weights and data come from one seed."""
    first, second = models.lone("conv"), models.lone("conv")

    assert torch.equal(first.batch[0], second.batch[0])
    for one, other in zip(first.network.parameters(), second.network.parameters(), strict=True):
        assert torch.equal(one, other)


def test_most_of_mlp_is_its_last_layer() -> None:
    """512 x 8,000 weights and 8,000 biases of 4 bytes, before three layers of 512 x 512."""
    job = models.lone("mlp")

    last = sum(p.numel() for p in job.network.layers[-1].parameters())
    assert 4 * last == 16_416_000
    assert job.gradient_bytes == 16_416_000 + 3 * 4 * (512 * 512 + 512)
