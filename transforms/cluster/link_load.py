"""Which links a collective loads: patterns of traffic laid over a cluster's topology.

In: a cluster and a group of devices, in order. Out: a `Traffic`, per byte of the pattern.
Links of a machine are full duplex and named by direction, "m0.gpu1>nvswitch"; what joins a
machine to the outside is one link, "m0>network", since channels spread over all of its NICs.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise, permutations
from typing import TYPE_CHECKING

from foretrace.transforms.cluster.model import OUTSIDE, Cluster, Link
from foretrace.transforms.cluster.nvlink_rings import PAIR, chain, directed_rings, edges_of, rings
from foretrace.transforms.cluster.topology import by_machine, exit_rate, fabric, way, wires

if TYPE_CHECKING:
    from collections.abc import Iterable

UNTESTED = 0.5
"""Spread of a bandwidth where no measurement was at hand; an estimate of this project."""

Flow = tuple[int, int, float]
"""Sending device, receiving device, bytes."""


@dataclass
class Traffic:
    """How long each link is busy per byte of a pattern; what returns one has finished it.

    Attributes
    ----------
    loads
        Directed link to nanoseconds per byte, other groups' traffic left out.
    ns_per_byte
        The slowest of them, and of what a device alone can put through.
    spread
        Of that slowest link (share).
    note
        What is doubtful about the path taken; "" where nothing is.
    is_chain
        Devices that have no ring use one chain of direct links, in both directions.
    """

    loads: dict[str, float] = field(default_factory=dict)
    ns_per_byte: float = 0.0
    spread: float = 0.0
    note: str = ""
    is_chain: bool = False

    def add(self, name: str, weight: float, link: Link, count: int) -> None:
        """Send *weight* bytes over *count* parallel links that together are called *name*."""
        self.load(name, weight / (count * link.bytes_per_ns), link.spread)

    def load(self, name: str, ns_per_byte: float, spread: float) -> None:
        """Keep the link *name* busy for *ns_per_byte* more."""
        self.loads[name] = self.loads.get(name, 0.0) + ns_per_byte
        self.limit(self.loads[name], spread)

    def limit(self, ns_per_byte: float, spread: float) -> None:
        """Make the pattern take at least *ns_per_byte*."""
        if ns_per_byte > self.ns_per_byte:
            self.ns_per_byte, self.spread = ns_per_byte, spread

    def doubt(self, note: str) -> None:
        """Mark the pattern: no measurement tells how it runs."""
        self.spread = max(self.spread, UNTESTED)
        self.note = note


@lru_cache(maxsize=256)
def ring_traffic(cluster: Cluster, devices: tuple[int, ...]) -> Traffic:
    """Return the traffic of one byte over every edge of the ring through *devices*.

    NCCL visits machines in the order in which they first occur and orders the devices of a
    machine itself; TCP rings take the order given.
    """
    if cluster.transport == "tcp":
        closed = [*devices, devices[0]]
        return flow_traffic(cluster, tuple((u, v, 1.0) for u, v in pairwise(closed)))
    traffic = Traffic()
    groups = by_machine(cluster, devices)
    _rings_inside(traffic, cluster, groups, 1.0)
    if len(groups) > 1:
        order = list(groups)
        for here, there in zip(order, [*order[1:], order[0]], strict=True):
            _between(traffic, cluster, here, there, 1.0)
            _limit_exit(traffic, cluster, groups[here], 1.0)
    return traffic


@lru_cache(maxsize=256)
def flow_traffic(cluster: Cluster, flows: tuple[Flow, ...]) -> Traffic:
    """Return the traffic of single flows, all at once."""
    traffic = Traffic()
    leaving: dict[int, float] = {}
    for source, destination, weight in flows:
        (here, sender), (there, receiver) = cluster.place(source), cluster.place(destination)
        if here == there:
            _inside(traffic, cluster, here, sender, receiver, weight)
            continue
        _between(traffic, cluster, here, there, weight)
        leaving[source] = leaving.get(source, 0.0) + weight
    for source, weight in leaving.items():
        _limit_exit(traffic, cluster, (cluster.place(source)[1],), weight)
    return traffic


@lru_cache(maxsize=256)
def exchange_traffic(cluster: Cluster, devices: tuple[int, ...]) -> Traffic:
    """Return the traffic of one byte from each of *devices* to each other one."""
    traffic = Traffic()
    groups = by_machine(cluster, devices)
    total = len(devices)
    for machine, members in groups.items():
        for sender, receiver in permutations(members, PAIR):
            _inside(traffic, cluster, machine, sender, receiver, 1.0)
        if len(groups) > 1:
            weight = len(members) * (total - len(members))
            _out_of(traffic, cluster, machine, weight)
            _into(traffic, cluster, machine, weight)
            _limit_exit(traffic, cluster, members, weight)
    for at, level in enumerate(cluster.levels):
        below: Counter[str] = Counter()
        for machine, members in groups.items():
            below[cluster.switches_above(machine)[at]] += len(members)
        for switch, inside in below.items():
            if inside < total:
                for name in (f"{switch}>", f">{switch}"):
                    traffic.add(name, inside * (total - inside), level.uplink, level.count)
    return traffic


@lru_cache(maxsize=256)
def tree_traffic(cluster: Cluster, devices: tuple[int, ...]) -> Traffic:
    """Return the traffic of reducing one byte up and sending it down NCCL's two binary trees.

    Each tree carries half; inside a machine both follow the ring's links, up and down.
    """
    traffic = Traffic()
    groups = by_machine(cluster, devices)
    _rings_inside(traffic, cluster, groups, 2.0)
    for child, parent in double_tree(list(groups)):
        for here, there in ((child, parent), (parent, child)):
            _between(traffic, cluster, here, there, 0.5)
    for machine, members in groups.items():
        if len(groups) > 1:
            busy = traffic.loads[f"m{machine}>{OUTSIDE}"]
            _limit_exit(traffic, cluster, members, busy * exit_rate(cluster, cluster.devices)[0])
    return traffic


def double_tree(nodes: list[int]) -> list[tuple[int, int]]:
    """Return child and parent of every edge of two trees.

    Inner nodes of one are leaves of the other.

    The first is NCCL's binary tree (a node hangs below the next multiple of twice its lowest bit),
    the second its mirror image, or shifted by one where the number is odd.

    Examples
    --------
    >>> double_tree([0, 1, 2, 3])
    [(1, 2), (2, 0), (3, 2), (2, 1), (1, 3), (0, 1)]
    """
    total = len(nodes)
    edges = [(child, _parent(child, total)) for child in range(1, total)]
    if total % 2:
        other = [((c + 1) % total, (p + 1) % total) for c, p in edges]
    else:
        other = [(total - 1 - c, total - 1 - p) for c, p in edges]
    return [(nodes[child], nodes[parent]) for child, parent in (*edges, *other)]


def _parent(child: int, total: int) -> int:
    bit = child & -child
    above = (child ^ bit) | (bit << 1)
    return above if above < total else child ^ bit


def merge_traffic(traffics: Iterable[Traffic]) -> Traffic:
    """Return the traffic of several groups that communicate at the same time."""
    together = Traffic()
    for one in traffics:
        for name, ns_per_byte in one.loads.items():
            together.load(name, ns_per_byte, one.spread)
        together.limit(one.ns_per_byte, one.spread)
        together.note = together.note or one.note
        together.is_chain |= one.is_chain
    return together


def _rings_inside(
    traffic: Traffic, cluster: Cluster, groups: dict[int, tuple[str, ...]], weight: float
) -> None:
    """Send *weight* bytes over every ring edge that stays in its machine."""
    for machine, members in groups.items():
        if len(members) > 1 and fabric(cluster) == "mesh":
            _ring_of_links(traffic, cluster, machine, members, weight)
        else:
            order = [*members, members[0]] if len(groups) == 1 else [*members]
            _ring_of_ways(traffic, cluster, machine, order, weight)


def _ring_of_ways(
    traffic: Traffic, cluster: Cluster, machine: int, order: list[str], weight: float
) -> None:
    """Send *weight* bytes from each to the next, along the way through the switches."""
    for sender, receiver in pairwise(order):
        _inside(traffic, cluster, machine, sender, receiver, weight)


def _ring_of_links(
    traffic: Traffic, cluster: Cluster, machine: int, members: tuple[str, ...], weight: float
) -> None:
    """Split the bytes over all rings of direct links; else one chain; else the way by PCIe."""
    at_once = directed_rings(cluster.machine, members)
    order = chain(cluster.machine, members)
    if at_once:
        cycles = [edge for c in rings(cluster.machine, members) for edge in edges_of(c)]
        back = [] if len(members) == PAIR else [(v, u) for u, v in cycles]
        _over_links(traffic, cluster, machine, [*cycles, *back], weight / at_once)
    elif order:
        there_and_back = [*pairwise(order), *pairwise(order[::-1])]
        _over_links(traffic, cluster, machine, there_and_back, weight)
        traffic.is_chain = True
        traffic.doubt("these devices have no ring of direct links, so one chain of them is assumed")
    else:
        _ring_of_ways(traffic, cluster, machine, [*members, members[0]], weight)
        traffic.doubt("these devices have neither a ring nor a chain of direct links")


def _over_links(
    traffic: Traffic, cluster: Cluster, machine: int, edges: list[tuple[str, str]], share: float
) -> None:
    """Send *share* bytes over one link of each of *edges*, which may name a pair repeatedly."""
    for sender, receiver in edges:
        wire = cluster.machine.edges[sender, receiver]
        traffic.add(f"m{machine}.{sender}>{receiver}", share, wire["link"], wire["count"])
        traffic.limit(share / wire["link"].bytes_per_ns, wire["link"].spread)


def _inside(
    traffic: Traffic, cluster: Cluster, machine: int, sender: str, receiver: str, weight: float
) -> None:
    edges = pairwise(way(cluster, sender, receiver))
    for (u, v), (link, count) in zip(edges, wires(cluster, sender, receiver), strict=True):
        traffic.add(f"m{machine}.{u}>{v}", weight, link, count)


def _between(traffic: Traffic, cluster: Cluster, here: int, there: int, weight: float) -> None:
    """Send *weight* bytes from one machine to another, up as many levels as they differ in."""
    _out_of(traffic, cluster, here, weight)
    _into(traffic, cluster, there, weight)
    for level in cluster.levels:
        up, down = here // level.machines, there // level.machines
        if up == down:
            return
        traffic.add(f"{level.name}{up}>", weight, level.uplink, level.count)
        traffic.add(f">{level.name}{down}", weight, level.uplink, level.count)


def _out_of(traffic: Traffic, cluster: Cluster, machine: int, weight: float) -> None:
    rate, spread = exit_rate(cluster, cluster.devices)
    traffic.load(f"m{machine}>{OUTSIDE}", weight / rate, spread)


def _into(traffic: Traffic, cluster: Cluster, machine: int, weight: float) -> None:
    rate, spread = exit_rate(cluster, cluster.devices)
    traffic.load(f"{OUTSIDE}>m{machine}", weight / rate, spread)


def _limit_exit(
    traffic: Traffic, cluster: Cluster, members: tuple[str, ...], weight: float
) -> None:
    """Hold what leaves a machine to what the group's own devices can put through."""
    rate, spread = exit_rate(cluster, members)
    traffic.limit(weight / rate, spread)
