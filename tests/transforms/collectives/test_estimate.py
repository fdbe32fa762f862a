"""What collectives have in common: shares, sums of stages, BlueConnect's groups."""

from __future__ import annotations

import pytest

from foretrace.errors import TransformError
from foretrace.transforms.cluster.presets import ethernet, load_cluster
from foretrace.transforms.collectives.estimate import (
    Estimate,
    edge_share,
    hierarchical,
    in_series,
    nested_groups,
)


@pytest.mark.parametrize(
    ("kind", "share"),
    [
        ("all_reduce", 1.5),
        ("all_gather", 0.75),
        ("reduce_scatter", 0.75),
        ("all_to_all", 0.25),
        ("broadcast", 1.0),
        ("reduce", 1.0),
        ("send", 1.0),
    ],
)
def test_shares_of_four_ranks(kind: str, share: float) -> None:
    """Per edge of a ring; of all_to_all per pair."""
    assert edge_share(kind, 4) == share


def test_an_interval_is_that_of_its_parts() -> None:
    """Half of 10 ns may be off by all of it, 90 ns by a tenth."""
    estimate = Estimate(10, 80, {}, start_spread=1.0, transfer_spread=0.1, copy_ns=10)

    assert estimate.ns == 100
    assert estimate.spread == pytest.approx(0.19)
    assert Estimate(0, 0, {}, 1.0, 1.0).spread == 0.0


def test_stages_follow_each_other() -> None:
    """Times and loads add up, doubts stay."""
    one = Estimate(1, 10, {"x": 5.0}, 0.1, 0.2)
    other = Estimate(2, 20, {"x": 6.0, "y": 1.0}, 0.3, 0.1, note="doubtful")
    both = in_series([one, other], "twice")

    assert (both.ns, both.busy) == (33, {"x": 11.0, "y": 1.0})
    assert (both.start_spread, both.transfer_spread) == (0.3, 0.2)
    assert (both.form, both.note) == ("twice", "doubtful")


def test_groups_by_machine_and_rack() -> None:
    """Inside the machines, inside the racks, across the racks: every device once a level."""
    levels = nested_groups(ethernet(8, 1.0, racks=2), tuple(range(8)))

    assert levels[1] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert levels[2] == [(0, 4), (1, 5), (2, 6), (3, 7)]
    assert [sorted(sum(groups, ())) for groups in levels] == [list(range(8))] * 3


def test_one_group_stays_in_a_part_of_the_cluster() -> None:
    """Two machines of four: nothing beyond them is split."""
    levels = nested_groups(load_cluster("dgx-a100", 4), tuple(range(16)))

    assert levels == [
        [tuple(range(8)), tuple(range(8, 16))],
        [(at, at + 8) for at in range(8)],
    ]


def test_uneven_groups_cannot_be_decomposed() -> None:
    """The counts are named."""
    with pytest.raises(TransformError, match=r"as many of its devices in each machine.*: 2, 1 do"):
        nested_groups(load_cluster("dgx-a100", 2), (0, 1, 8))


def test_stages_of_blueconnect() -> None:
    """reduce_scatter outwards on ever smaller parts, all_reduce outside, all_gather back."""
    seen: list[tuple[str, int, float]] = []

    def stage(kind: str, groups: list[tuple[int, ...]], size: float) -> Estimate:
        seen.append((kind, len(groups), size))
        return Estimate(1, size, {}, 0, 0)

    found = hierarchical(ethernet(8, 1.0, racks=2), tuple(range(8)), 80.0, stage)

    assert sorted(seen) == [
        ("all_gather", 2, 80),
        ("all_reduce", 4, 20),
        ("reduce_scatter", 2, 80),
    ]
    assert (found.ns, found.form) == (183, "hierarchical 4 x 2")
