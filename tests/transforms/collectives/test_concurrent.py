"""Collectives that run at once share what they meet on."""

from __future__ import annotations

from foretrace.transforms.cluster.presets import ethernet, load_cluster
from foretrace.transforms.collectives.concurrent import cost_at_once
from foretrace.transforms.collectives.cost import collective_cost


def test_who_meets_nobody_takes_as_long_as_alone() -> None:
    """Pairs within different machines of one group each."""
    cluster = ethernet(4, 1.0)
    alone = collective_cost(cluster, (0, 1), "send", 1e6)

    assert cost_at_once(cluster, [(0, 1)], "send", 1e6) == alone
    assert cost_at_once(cluster, [(0, 1), (2, 3)], "send", 1e6) == alone


def test_ranks_of_one_machine_share_its_cards() -> None:
    """Eight GPUs that all send to the next machine have an eighth of its network each."""
    cluster = load_cluster("dgx-a100", nodes=2).with_network(gb_per_s=100.0)
    one, eight = (
        cost_at_once(cluster, [(gpu, gpu + 8) for gpu in range(count)], "send", 1e9)
        for count in (1, 8)
    )

    assert 1.5 < eight.ns / one.ns < 8
    assert 8e9 / eight.ns < 100
    assert "8 at once share its links" in eight.note
    assert max(use for _, use in eight.uses) <= 1.0
