"""Bytes laid over links: small clusters by hand, and what must hold on any."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretrace.transforms.cluster.file import parse_cluster
from foretrace.transforms.cluster.link_load import (
    double_tree,
    exchange_traffic,
    flow_traffic,
    merge_traffic,
    ring_traffic,
    tree_traffic,
)
from foretrace.transforms.cluster.presets import ethernet, load_cluster
from tests.support.clusters import BOX

PAIRS = parse_cluster(BOX, "box")
"""Two machines of two devices: 10 bytes per ns on the bus, 2 x 5 to the outside."""
MESH = load_cluster("dgx-1v", 2)
LINK = 25 * 0.903


def test_a_ring_through_a_hub() -> None:
    """Each device sends one byte and receives one."""
    traffic = ring_traffic(PAIRS, (0, 1))

    assert traffic.loads == {
        "m0.a>hub": 0.1,
        "m0.hub>b": 0.1,
        "m0.b>hub": 0.1,
        "m0.hub>a": 0.1,
    }
    assert traffic.ns_per_byte == 0.1


def test_a_ring_through_two_machines() -> None:
    """One flow inside each, one from each to the other."""
    traffic = ring_traffic(PAIRS, (0, 1, 2, 3))

    assert traffic.loads["m0>network"] == traffic.loads["network>m0"] == 0.1
    assert "m0.b>hub" not in traffic.loads


def test_machines_are_visited_as_they_first_occur() -> None:
    """NCCL orders the devices of a machine itself: interleaved ranks cross no more often."""
    assert ring_traffic(PAIRS, (0, 2, 1, 3)).loads == ring_traffic(PAIRS, (0, 1, 2, 3)).loads


def test_tcp_rings_take_the_order_given() -> None:
    """Contiguous racks put one flow on each direction of the uplink, interleaved ones two."""
    racks = ethernet(4, 1.0, racks=2, uplink_gbit=0.3)
    near, far = (ring_traffic(racks, order) for order in ((0, 1, 2, 3), (0, 2, 1, 3)))

    assert far.loads["rack0>"] == 2 * near.loads["rack0>"]
    assert far.ns_per_byte == 2 * near.ns_per_byte


@pytest.mark.parametrize(("gpus", "at_once"), [(2, 1), (3, 2), (4, 4), (6, 2), (8, 6)])
def test_rings_of_links_share_the_bytes(gpus: int, at_once: int) -> None:
    """As many directed rings as were counted; every link used carries its part."""
    traffic = ring_traffic(MESH, tuple(range(gpus)))

    assert traffic.ns_per_byte == pytest.approx(1 / (at_once * LINK))
    assert not traffic.note
    assert max(traffic.loads.values()) <= traffic.ns_per_byte * 1.001


def test_a_chain_carries_everything_both_ways() -> None:
    """Five GPUs of a DGX-1V; such an answer is doubtful."""
    traffic = ring_traffic(MESH, (0, 1, 2, 3, 4))

    assert traffic.is_chain
    assert traffic.ns_per_byte == pytest.approx(1 / LINK)
    assert "no ring of direct links" in traffic.note
    assert traffic.spread == 0.5


def test_devices_without_any_direct_link() -> None:
    """They go by neighbours, and are marked."""
    traffic = ring_traffic(MESH, (0, 7))

    assert "neither a ring nor a chain" in traffic.note
    assert "m0.gpu0>gpu4" in traffic.loads


def test_one_device_is_held_by_its_own_lanes() -> None:
    """It cannot use the NICs of its whole machine."""
    switch = load_cluster("dgx-a100", 2)
    one = flow_traffic(switch, ((0, 8, 1.0),))

    assert one.ns_per_byte == pytest.approx(1 / (31.5 * 0.76))
    assert one.loads["m0>network"] == pytest.approx(1 / (8 * 31.5 * 0.76))


def test_an_exchange_crosses_by_pairs() -> None:
    """Two by two devices: four bytes each way, two more inside each machine."""
    traffic = exchange_traffic(PAIRS, (0, 1, 2, 3))

    assert traffic.loads["m0>network"] == pytest.approx(0.4)
    assert traffic.loads["m1.a>hub"] == pytest.approx(0.1)
    assert "m0>network" not in exchange_traffic(PAIRS, (0, 1)).loads


def test_an_exchange_goes_up_the_levels() -> None:
    """Two racks of two hosts: four bytes cross each way; a rack alone does not load its uplink."""
    racks = ethernet(4, 1.0, racks=2, uplink_gbit=0.3)
    uplink = 0.3 / 8 * 1448 / 1514

    assert exchange_traffic(racks, (0, 1, 2, 3)).loads["rack0>"] == pytest.approx(4 / uplink)
    assert "rack0>" not in exchange_traffic(racks, (0, 1)).loads


def test_two_nodes_exchange_one_byte_in_a_tree() -> None:
    """Each of the two trees carries half, up and down; inside, both follow the ring."""
    traffic = tree_traffic(PAIRS, (0, 1, 2, 3))

    assert traffic.loads["m0>network"] == pytest.approx(0.1)
    assert traffic.loads["m0.a>hub"] == pytest.approx(0.2)
    assert "m0>network" not in tree_traffic(PAIRS, (0, 1)).loads


@settings(deadline=None)
@given(st.integers(2, 200))
def test_double_trees(nodes: int) -> None:
    """Both reach every node; no node has more than four neighbours, so none sends over 2 S."""
    edges = double_tree(list(range(nodes)))
    degree = [sum(node in edge for edge in edges) for node in range(nodes)]

    assert len(edges) == 2 * (nodes - 1)
    assert {child for child, _ in edges[: nodes - 1]} == set(range(1, nodes))
    assert max(degree) <= 4


def test_groups_at_the_same_time() -> None:
    """Loads add up where they meet."""
    pair = ring_traffic(PAIRS, (0, 2)), ring_traffic(PAIRS, (1, 3))

    assert merge_traffic(pair).loads["m0>network"] == pytest.approx(0.2)
    assert merge_traffic(pair).ns_per_byte == pytest.approx(0.2)
