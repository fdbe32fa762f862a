"""Models drawn by a number: the same wherever they are drawn, trainable, and to be cut."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from benchmarks.shaped_network import chains, models  # noqa: E402 - needs torch
from benchmarks.shaped_network.plan import draw_groups  # noqa: E402 - same


@pytest.mark.parametrize("number", range(6))
def test_a_drawn_model_trains_and_can_be_cut(number: int) -> None:
    """Its halves one after another give what the whole gives."""
    job, again = models.lone(f"drawn-{number}"), models.lone(f"drawn-{number}")
    job.step()
    again.step()
    inputs, labels = job.batch
    layers, cut = job.network.layers, models.find_example(f"drawn-{number}").cut

    assert 0 < cut < len(layers)
    assert len(inputs) % 4 == 0  # as many micro-batches as its pipelines have
    halves = layers[cut:](layers[:cut](inputs))
    torch.testing.assert_close(chains.loss(halves, labels), job.network(inputs, labels))
    for one, other in zip(job.network.parameters(), again.network.parameters(), strict=True):
        torch.testing.assert_close(one, other)


def test_groups_are_drawn_by_seed() -> None:
    """Each with every scheme at two rates; another seed draws other models."""
    first, second = draw_groups(2, 1), draw_groups(2, 2)

    assert [group.model for group in first] == ["drawn-100", "drawn-101"]
    assert not {group.model for group in first} & {group.model for group in second}
    assert {setup.scheme for setup in first[0].setups} == {"ddp", "no_sync", "fsdp", "pipeline"}
