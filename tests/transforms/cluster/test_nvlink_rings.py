"""Counted NVLink rings: the DGX-1V against its published figures, and small graphs by hand."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, pairwise

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretrace.transforms.cluster.nvlink_rings import chain, directed_rings, edges_of, rings
from foretrace.transforms.cluster.presets import load_cluster

DGX1 = load_cluster("dgx-1v")
GPUS = DGX1.devices


@pytest.mark.parametrize(
    ("gpus", "directed"), [(2, 1), (3, 2), (4, 4), (5, 0), (6, 2), (7, 4), (8, 6)]
)
def test_the_first_gpus_of_a_dgx1(gpus: int, directed: int) -> None:
    """What NCCL's measured bandwidths imply, GPU by GPU."""
    assert directed_rings(DGX1.machine, GPUS[:gpus]) == directed


@pytest.mark.parametrize(
    ("gpus", "counts"),
    [
        (2, {0: 12, 1: 8, 2: 8}),
        (3, {0: 48, 2: 8}),
        (4, {0: 62, 2: 6, 4: 2}),
        (7, {4: 8}),
        (8, {6: 1}),
    ],
)
def test_placement_decides(gpus: int, counts: dict[int, int]) -> None:
    """Over all subsets of the machine; most triples have no ring at all."""
    found = Counter(directed_rings(DGX1.machine, group) for group in combinations(GPUS, gpus))

    assert found == counts


def test_a_full_mesh_of_four_with_four_links_each() -> None:
    """Six cycles use all 24 links of a Perlmutter node: 12 directed rings."""
    node = load_cluster("perlmutter-2022")

    assert directed_rings(node.machine, node.devices) == 12


def test_devices_without_links_have_no_ring() -> None:
    """Neither on PCIe nor through a switch; a link that leaves the group does not help."""
    switch = load_cluster("dgx-a100")

    assert rings(switch.machine, switch.devices) == ()
    assert rings(DGX1.machine, ("gpu0", "gpu1", "gpu7")) == ()


def test_a_chain_where_no_ring_is() -> None:
    """Five GPUs hang together by one double link; two opposite ones not at all."""
    order = chain(DGX1.machine, GPUS[:5])

    assert set(order) == set(GPUS[:5])
    assert all(DGX1.machine.has_edge(*edge) for edge in pairwise(order))
    assert chain(DGX1.machine, ("gpu0", "gpu7")) == ()


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(0, 2), min_size=10, max_size=10))
def test_rings_are_cycles_that_share_no_link(links: list[int]) -> None:
    """On any mesh of five: each passes every device once, and no link is used twice."""
    names = tuple("abcde")
    mesh = nx.Graph()
    mesh.add_nodes_from(names)
    for (u, v), count in zip(combinations(names, 2), links, strict=True):
        if count:
            mesh.add_edge(u, v, count=count)

    found = rings(mesh, names)

    used = Counter(frozenset(edge) for cycle in found for edge in edges_of(cycle))
    assert all(sorted(cycle) == sorted(names) for cycle in found)
    assert all(n <= mesh.edges[tuple(edge)]["count"] for edge, n in used.items())
