"""`collective_cost`: forms and tables behind one door, absurd input in one sentence."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretrace.errors import TransformError
from foretrace.graph.model import COSTS
from foretrace.transforms.cluster.cost_tables import KINDS, CostEntry, make_table
from foretrace.transforms.cluster.presets import ethernet, load_cluster
from foretrace.transforms.collectives.cost import collective_cost, cost_at_once

MESH, SWITCH = load_cluster("dgx-1v"), load_cluster("dgx-a100", 4)
MIB = 1 << 20


def measured(ranks: int, ns: float, *, topology: str = "switch", size: int = MIB) -> CostEntry:
    """Return one measured all_reduce on A100."""
    return CostEntry("A100-SXM4-80GB", topology, "all_reduce", ranks, size, ns, 0.01)


def test_a_cost_says_where_it_comes_from() -> None:
    """Time, source, interval, links and form."""
    cost = collective_cost(ethernet(2, 1.0), (0, 1), "all_reduce", 10 * MIB)

    assert cost.ns == round(65_000 + 10 * MIB * 8 * 1514 / 1448)
    assert (cost.source, cost.note) == ("roofline", "ring")
    assert cost.source in COSTS
    assert 0.02 <= cost.spread < 0.021
    assert dict(cost.uses)["m0>network"] == pytest.approx(1 - 65_000 / cost.ns)


def test_one_rank_has_nothing_to_do() -> None:
    """It takes no time and no link."""
    assert collective_cost(MESH, (3,), "all_reduce", MIB).ns == 0


def test_a_barrier_takes_its_latency() -> None:
    """Zero bytes load no link."""
    cost = collective_cost(SWITCH, (0, 1), "all_reduce", 0)

    assert cost.ns == round(1000 * (6.6 + 2 * 0.6))
    assert not any(share for _, share in cost.uses)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"devices": ()}, "all_reduce among 0 ranks: a group has at least 1"),
        ({"devices": (1, 2, 1)}, "device 1 is in the group more than once"),
        ({"devices": (0, 8)}, "device 8 is not in cluster 'dgx-1v', which has 8 .0 to 7."),
        ({"devices": (-1, 0)}, "device -1 is not in cluster"),
        ({"size_bytes": -1}, "a collective of -1 bytes"),
        ({"size_bytes": math.nan}, "a collective of nan bytes"),
        ({"size_bytes": math.inf}, "a collective of inf bytes"),
        ({"kind": "allreduce"}, "unknown kind 'allreduce': did you mean 'all_reduce'?"),
        ({"kind": "?"}, "unknown kind '.': expected one of all_reduce, all_gather"),
        ({"kind": "send", "devices": (0, 1, 2)}, "send is between 2 devices, not 3"),
        ({"algorithm": "rings"}, "unknown algorithm 'rings': did you mean 'ring'?"),
        ({"protocol": "ll127"}, "unknown protocol 'll127': did you mean 'll128'?"),
        ({"kind": "reduce", "algorithm": "hierarchical"}, "a hierarchical reduce is not known"),
    ],
)
def test_absurd_input(change: dict[str, Any], said: str) -> None:
    """One sentence each."""
    asked: dict[str, Any] = {"cluster": MESH, "devices": (0, 1), "kind": "all_reduce"}

    with pytest.raises(TransformError, match=said):
        collective_cost(**{**asked, "size_bytes": 1, **change})


def test_a_table_is_used_inside_its_sizes() -> None:
    """Half way in the logarithm of size is half way in that of time."""
    table = make_table([measured(4, 1e5), measured(4, 4e5, size=16 * MIB)])
    cost = collective_cost(SWITCH, range(4), "all_reduce", 4 * MIB, table=table)

    assert (cost.ns, cost.source, cost.note) == (200_000, "table", "table of 4 ranks")
    assert cost.spread == pytest.approx(0.01)
    assert cost.uses


def test_a_table_gives_way_to_what_was_asked_for() -> None:
    """An algorithm or protocol by name is costed by its form."""
    table = make_table([measured(4, 1.0)])
    cost = collective_cost(SWITCH, range(4), "all_reduce", MIB, protocol="simple", table=table)

    assert cost.source == "roofline"


@pytest.mark.parametrize(
    ("kind", "device", "topology"),
    [
        ("broadcast", "A100-SXM4-80GB", "switch"),
        ("all_reduce", "H100-SXM5", "switch"),
        ("all_reduce", "A100-SXM4-80GB", "mesh"),
    ],
)
def test_other_cases_of_a_table_do_not_count(kind: str, device: str, topology: str) -> None:
    """Another kind, device or topology says nothing."""
    table = make_table([CostEntry(device, topology, kind, 4, MIB, 1.0)])

    assert collective_cost(SWITCH, range(4), "all_reduce", MIB, table=table).source == "roofline"


def test_a_table_extends_to_more_machines() -> None:
    """From two and three machines of eight to four, by the fitted form."""
    topology = "switch, 8 in a machine, 1600 Gbit/s"
    rows = [
        measured(n, 1e6 + 1e5 * n + size * 2 * (n - 1) / n / 100, topology=topology, size=size)
        for n in (16, 24)
        for size in (64 * MIB, 128 * MIB, 256 * MIB)
    ]
    cost = collective_cost(SWITCH, range(32), "all_reduce", 128 * MIB, table=make_table(rows))

    expected = 1e6 + 32e5 + 128 * MIB * 2 * 31 / 32 / 100
    assert cost.ns == pytest.approx(expected, rel=1e-6)
    assert "extended from 16, 24 to 32 ranks" in cost.note


def test_a_table_of_more_machines_than_the_cluster_has() -> None:
    """One number of ranks is taken to another by the form."""
    topology = "switch, 8 in a machine, 1600 Gbit/s"
    table = make_table([measured(64, 2e6, topology=topology, size=128 * MIB)])
    cost = collective_cost(SWITCH, range(16), "all_reduce", 128 * MIB, table=table)

    assert 1e6 < cost.ns < 2e6
    assert cost.spread > 0.5
    assert "taken to 16 by the form" in cost.note


@pytest.mark.parametrize(
    ("cluster", "group", "ranks", "topology"),
    [
        (MESH, (0, 1, 2), 12, "mesh"),
        (SWITCH, (0, 1, 8, 9), 5, "switch, 2 in a machine, 1600 Gbit/s"),
        (SWITCH, (0, 1, 8), 6, "switch, uneven machines, 1600 Gbit/s"),
    ],
)
def test_tables_of_impossible_groups_do_not_count(
    cluster: Any, group: tuple[int, ...], ranks: int, topology: str
) -> None:
    """More ranks than a machine has devices; or ranks that do not fill machines alike."""
    row = measured(ranks, 1.0, topology=topology)._replace(device=cluster.device)
    cost = collective_cost(cluster, group, "all_reduce", MIB, table=make_table([row]))

    assert cost.source == "roofline"


def test_a_mesh_without_rings_refuses_what_others_measured() -> None:
    """Two and three GPUs tell nothing about five, which have no ring."""
    rows = [CostEntry("V100-SXM2", "mesh", "all_reduce", n, MIB, 1e5) for n in (2, 3)]

    with pytest.raises(TransformError, match="no ring of direct links, so the table's 2, 3 ranks"):
        collective_cost(MESH, range(5), "all_reduce", MIB, table=make_table(rows))


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(["dgx-1v", "dgx-a100", "pcie-box", "perlmutter-2021", "cloud-25g"]),
    st.sampled_from(KINDS),
    st.integers(2, 8),
    st.floats(0, 1e9),
    st.integers(1, 2),
)
def test_more_bytes_never_take_less(
    name: str, kind: str, ranks: int, size: float, machines: int
) -> None:
    """Any kind on any preset; shares stay between 0 and 1."""
    cluster = load_cluster(name, machines)
    group = range(0, cluster.size, max(cluster.size // ranks, 1))
    group = group[: 2 if kind == "send" else ranks]
    one, more = (collective_cost(cluster, group, kind, s) for s in (size, 2 * size))

    assert 0 < one.ns <= more.ns * (1 + one.spread)
    assert all(0 <= share <= 1 for _, share in (*one.uses, *more.uses))
    assert one.spread >= 0


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
