"""NCCL's choices and costs: its constants by hand, and where its protocols switch."""

from __future__ import annotations

import pytest

from foretrace.errors import TransformError
from foretrace.transforms.cluster.presets import load_cluster
from foretrace.transforms.collectives.cost import _estimate
from foretrace.transforms.collectives.nccl import (
    bandwidth_share,
    most_gb_per_s,
    nccl_estimate,
    steps,
)

MESH, SWITCH = load_cluster("dgx-1v", 2), load_cluster("dgx-a100", 2)
MIB = 1 << 20


def test_a_large_ring_on_a_switch() -> None:
    """The fitted form: 46 µs + 6.3 µs per further rank + S (1.5 / 300 + 1 / 549) GB/s."""
    found = nccl_estimate(SWITCH, [(0, 1, 2, 3)], "all_reduce", 1e9)

    assert found.form == "ring simple"
    assert found.start_ns == pytest.approx(46_000 + 3 * 6300)
    assert found.transfer_ns == pytest.approx(1.5e9 / 300)
    assert found.copy_ns == pytest.approx(1e9 / 549)


def test_half_an_all_reduce() -> None:
    """all_gather takes one half of its steps, bytes and copies."""
    whole = nccl_estimate(SWITCH, [(0, 1, 2, 3)], "all_reduce", 1e9)
    half = nccl_estimate(SWITCH, [(0, 1, 2, 3)], "all_gather", 1e9)

    assert half.transfer_ns * 2 == whole.transfer_ns
    assert half.copy_ns * 2 == whole.copy_ns
    assert half.start_ns == pytest.approx(46_000 + 3 * 3150)


@pytest.mark.parametrize(("gpus", "switch_mib"), [(4, 3), (7, 8), (8, 14)])
def test_protocols_switch_where_v100_do(gpus: int, switch_mib: int) -> None:
    """Measured times drop past 4 MiB (n=4), 8 (n=7) and 13 (n=8): LL128 gives way to Simple."""
    group = tuple(range(gpus))
    below, above = (
        nccl_estimate(MESH, [group], "all_reduce", mib * MIB).form
        for mib in (switch_mib - 1, switch_mib)
    )

    assert (below, above) == ("ring ll128", "ring simple")


def test_protocols_can_be_asked_for() -> None:
    """LL passes half of the bandwidth, and on an A100 never more than 87.7 GB/s."""
    by_ll = nccl_estimate(SWITCH, [(0, 1)], "all_reduce", 1e9, protocol="ll")
    by_ll128 = nccl_estimate(SWITCH, [(0, 1)], "all_reduce", 1e9, protocol="ll128")

    assert by_ll.transfer_ns == pytest.approx(1e9 / 87.7)
    assert by_ll128.transfer_ns == pytest.approx(1e9 / 300 / 0.92)
    assert by_ll.transfer_spread > by_ll128.transfer_spread


def test_a_chain_carries_the_whole() -> None:
    """Five V100: S over each link instead of 1.6 S over a ring."""
    found = nccl_estimate(MESH, [(0, 1, 2, 3, 4)], "all_reduce", 1e9)

    assert found.transfer_ns == pytest.approx(1e9 / (25 * 0.903))
    assert found.transfer_spread == 0.5


def test_trees_across_machines() -> None:
    """Asked for: two nodes move S instead of 1.875 S; NCCL takes them for small sizes only."""
    slow = load_cluster("perlmutter-2021", 2)
    tree = nccl_estimate(slow, [tuple(range(8))], "all_reduce", 1e9, algorithm="tree")

    assert tree.transfer_ns == pytest.approx(1e9 / 25 / 0.92)
    assert nccl_estimate(SWITCH, [tuple(range(16))], "all_reduce", 1e5).form == "tree ll"
    assert nccl_estimate(SWITCH, [tuple(range(16))], "all_reduce", 1e9).form == "ring simple"


def test_rings_across_machines_leave_by_every_nic() -> None:
    """26 steps inside two machines and 4 between them, 14 µs each; no copies, they overlap."""
    found = nccl_estimate(SWITCH, [tuple(range(16))], "all_reduce", 1e9)

    assert found.start_ns == pytest.approx(46_000 + 26 * 3150 + 4 * 14_000)
    assert found.transfer_ns == pytest.approx(1.875e9 / (8 * 31.5 * 0.76))
    assert found.copy_ns == 0


def test_slow_networks_set_the_latency() -> None:
    """A hop takes no less than its links do."""
    far = SWITCH.with_network(latency_ns=100_000)
    one = nccl_estimate(far, [(0, 8)], "send", 1000)

    assert one.start_ns == pytest.approx(6600 + 200_000)


def test_blueconnect_uses_the_fast_links_inside() -> None:
    """reduce_scatter and all_gather on NVSwitch; the NICs carry 2(2-1)/2 S together."""
    found = _estimate(SWITCH, tuple(range(16)), "all_reduce", 1e9, "hierarchical")
    inside = 2 * (0.875e9 / 300)
    across = 1e9 / (8 * 31.5 * 0.76)

    assert found.form == "hierarchical 8 x 2"
    assert found.transfer_ns == pytest.approx(inside + across)


def test_point_to_point() -> None:
    """One hop; the bandwidth of an exchange is not known above 100 kB."""
    assert nccl_estimate(MESH, [(0, 1)], "send", 1000).form == "direct ll"
    small, large = (nccl_estimate(MESH, [tuple(range(8))], "all_to_all", s) for s in (1e4, 1e6))

    assert not small.note
    assert "has not been compared" in large.note
    assert large.transfer_spread >= 0.5


@pytest.mark.parametrize(
    ("kind", "settings", "said"),
    [
        ("all_gather", {"algorithm": "tree"}, "NCCL has no tree all_gather"),
        ("all_reduce", {"protocol": "ll128"}, "NCCL does not use ll128 on these devices"),
    ],
)
def test_what_nccl_does_not_have(kind: str, settings: dict[str, str], said: str) -> None:
    """Trees for all_reduce only, LL128 over NVLink only."""
    with pytest.raises(TransformError, match=said):
        nccl_estimate(load_cluster("pcie-box"), [(0, 1)], kind, 1e6, **settings)


@pytest.mark.parametrize(
    ("algorithm", "protocol", "size", "machines", "share"),
    [
        ("ring", "simple", 1e3, 1, 1.0),
        ("tree", "simple", 1e9, 1, 0.92),
        ("tree", "simple", 64 << 12, 2, 0.92 * 0.5),
        ("tree", "ll128", 1e9, 1, 0.92 * 7 / 9),
        ("tree", "ll128", 0, 2, 0.92 * 120 / 128),
    ],
)
def test_shares_of_bandwidth(
    algorithm: str, protocol: str, size: float, machines: int, share: float
) -> None:
    """By protocol; trees also by size and number of machines."""
    found = bandwidth_share(algorithm, protocol, size=size, machines=machines)

    assert found == pytest.approx(share)


def test_limits_of_ll() -> None:
    """Inside a machine, by the generation of the device."""
    assert most_gb_per_s("ll", 7.0, machines=1) == 39.0
    assert most_gb_per_s("ll", 7.0, machines=2) == float("inf")
    assert most_gb_per_s("simple", 7.0, machines=1) == float("inf")


@pytest.mark.parametrize(
    ("kind", "ranks", "machines", "expected"),
    [
        ("all_reduce", 8, 1, (14, 0)),
        ("all_reduce", 2, 2, (0, 2)),
        ("reduce_scatter", 16, 2, (14, 1)),
        ("send", 2, 2, (0, 1)),
        ("all_to_all", 8, 1, (1, 0)),
    ],
)
def test_steps_of_a_ring(kind: str, ranks: int, machines: int, expected: tuple[int, int]) -> None:
    """Inside machines, and between them."""
    assert steps(kind, "ring", ranks=ranks, machines=machines) == expected
