"""What a cluster's wiring means for a group of devices: ways, rates, latencies, its class.

In: a cluster and the devices of a group. Nothing here knows about collectives.
"""

from __future__ import annotations

from functools import lru_cache, partial
from itertools import pairwise
from typing import TYPE_CHECKING

import networkx as nx

from foretrace.transforms.cluster.model import OUTSIDE, Cluster, Link
from foretrace.transforms.cluster.nvlink_rings import chain

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def by_machine(cluster: Cluster, devices: Iterable[int]) -> dict[int, tuple[str, ...]]:
    """Return machine to the names of its devices in the group; machines as they first occur."""
    members_of: dict[int, list[str]] = {}
    for device in devices:
        machine, name = cluster.place(device)
        members_of.setdefault(machine, []).append(name)
    return {machine: tuple(sorted(names)) for machine, names in members_of.items()}


@lru_cache(maxsize=64)
def fabric(cluster: Cluster) -> str:
    """Return what joins the devices of one machine: "mesh", "switch", "pcie" or "tcp".

    Examples
    --------
    >>> from foretrace.transforms.cluster.presets import load_cluster
    >>> fabric(load_cluster("dgx-1v")), fabric(load_cluster("dgx-a100"))
    ('mesh', 'switch')
    """
    if cluster.transport == "tcp":
        return "tcp"
    ends = [
        (u in cluster.devices) + (v in cluster.devices)
        for u, v, link in cluster.machine.edges(data="link")
        if link.medium == "nvlink"
    ]
    return {2: "mesh", 1: "switch", 0: "pcie"}[max(ends, default=0)]


def topology_of(cluster: Cluster, devices: Sequence[int]) -> str:
    """Return the class of topology that a group of *devices* uses, as cost tables call it.

    Examples
    --------
    >>> from foretrace.transforms.cluster.presets import ethernet, load_cluster
    >>> topology_of(load_cluster("dgx-a100", 2), range(8))
    'switch'
    >>> topology_of(load_cluster("dgx-a100", 2), range(16))
    'switch, 8 in a machine, 1600 Gbit/s'
    >>> topology_of(ethernet(2, 0.3), (0, 1))
    'tcp, 1 in a machine, 0.3 Gbit/s'
    """
    groups = by_machine(cluster, devices)
    if len(groups) == 1:
        return fabric(cluster)
    each = {len(members) for members in groups.values()}
    per = f"{min(each)} in a machine" if len(each) == 1 else "uneven machines"
    rate = 8 * sum(link.gb_per_s * count for link, count in nics(cluster))
    crossed = [f"across {level}s" for level in levels_crossed(cluster, groups)]
    return ", ".join([fabric(cluster), per, f"{rate:g} Gbit/s", *crossed])


def levels_crossed(cluster: Cluster, machines: Iterable[int]) -> list[str]:
    """Return the names of the levels on which *machines* are not below one switch."""
    above = zip(*(cluster.switches_above(machine) for machine in machines), strict=True)
    return [
        level.name
        for level, switches in zip(cluster.levels, above, strict=True)
        if len(set(switches)) > 1
    ]


def nics(cluster: Cluster) -> list[tuple[Link, int]]:
    """Return the links from one machine to the outside, each with its count."""
    if OUTSIDE not in cluster.machine:
        return []
    return [(d["link"], d["count"]) for *_, d in cluster.machine.edges(OUTSIDE, data=True)]


@lru_cache(maxsize=4096)
def way(cluster: Cluster, start: str, end: str) -> tuple[str, ...]:
    """Return the nodes from *start* to *end* inside a machine, along the fastest links.

    Another device forwards only between two that share it as a neighbour, as NCCL lets it.
    """
    linked = cluster.machine.subgraph(cluster.devices)
    if start in linked and end in linked and not linked.has_edge(start, end):
        shared = set(linked[start]) & set(linked[end])
        if shared:
            return min(((start, by, end) for by in sorted(shared)), key=partial(_time, linked))
    others = set(cluster.devices) - {start, end}
    free = cluster.machine.subgraph(set(cluster.machine) - others)
    return tuple(nx.shortest_path(free, start, end, weight=_slowness))


def _time(graph: nx.Graph, nodes: Sequence[str]) -> float:
    return sum(_slowness(u, v, graph.edges[u, v]) for u, v in pairwise(nodes))


def wires(cluster: Cluster, start: str, end: str) -> list[tuple[Link, int]]:
    """Return link and count of each edge on the `way`."""
    edges = (cluster.machine.edges[edge] for edge in pairwise(way(cluster, start, end)))
    return [(edge["link"], edge["count"]) for edge in edges]


@lru_cache(maxsize=4096)
def exit_rate(cluster: Cluster, devices: tuple[str, ...]) -> tuple[float, float]:
    """Return the bytes per ns that *devices* of a machine together send outside, and its spread.

    They use every NIC that they have a way to, except through devices left out.
    """
    others = set(cluster.devices) - set(devices)
    flow = nx.DiGraph()
    for u, v, data in cluster.machine.edges(data=True):
        if not others & {u, v}:
            rate = data["count"] * data["link"].bytes_per_ns
            flow.add_edge(u, v, capacity=rate)
            flow.add_edge(v, u, capacity=rate)
    flow.add_edges_from(("", device) for device in devices)
    spread = max(link.spread for link, _ in nics(cluster))
    return float(nx.maximum_flow_value(flow, "", OUTSIDE)), spread


@lru_cache(maxsize=256)
def hop_inside(cluster: Cluster, devices: tuple[int, ...]) -> tuple[str, int]:
    """Return medium and latency in ns of the slowest hop between devices of one machine."""
    media, latencies = {"nvlink"}, [0]
    for members in set(by_machine(cluster, devices).values()):
        order = chain(cluster.machine, members) or members
        for sender, receiver in pairwise(order):
            links = [link for link, _ in wires(cluster, sender, receiver)]
            media |= {link.medium for link in links}
            latencies.append(sum(link.latency_ns for link in links))
    return ("pcie" if "pcie" in media else "nvlink"), max(latencies)


@lru_cache(maxsize=256)
def hop_outside(cluster: Cluster, devices: tuple[int, ...]) -> int:
    """Return the latency in ns from one machine of the group to the next; 0 within one."""
    groups = by_machine(cluster, devices)
    if len(groups) == 1:
        return 0
    members = next(iter(groups.values()))
    way_out = sum(link.latency_ns for link, _ in wires(cluster, members[0], OUTSIDE))
    crossed = levels_crossed(cluster, groups)
    uplinks = [level.uplink.latency_ns for level in cluster.levels if level.name in crossed]
    return 2 * (way_out + sum(uplinks))


def _slowness(_start: str, _end: str, data: dict[str, int | Link]) -> float:
    link, count = data["link"], data["count"]
    assert isinstance(link, Link)
    assert isinstance(count, int)
    return 1 / (count * link.bytes_per_ns)
