"""Clusters by name, from a file or made here: `load_cluster` and `ethernet`.

docs/clusters.md has the format of the files; `model` says what a `Cluster` is.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from itertools import pairwise

import networkx as nx

from foretrace.errors import TransformError
from foretrace.transforms.cluster.file import read_cluster
from foretrace.transforms.cluster.model import OUTSIDE, Cluster, Level, Link, Start, positive

PAYLOAD, FRAME = 1448, 1514
"""Bytes of TCP data in a full Ethernet frame (1500 of IP, less 20 + 32 of headers), and the bytes
of that frame that the kernel counts and shapes."""
STARTUP_US = 65
"""Of one gloo collective on two ranks: 30 to 100 µs, measured over shaped veth pairs (the
project's findings on shaped links)."""
MEASURED = "shaped-links"
"""The preset whose processes, of one core each, tell what communication costs hosts."""
SHAPED_SPREAD = 0.02
"""Collectives of 1 MB and more over shaped links differ by at most 1.6 % from the ring form (same
source, 100 Mbit/s to 1 Gbit/s, two and four ranks)."""


def ethernet(
    ranks: int,
    gbit: float,
    racks: int | None = None,
    uplink_gbit: float | None = None,
    *,
    latency_ns: int = 0,
    burst_bytes: int = 0,
) -> Cluster:
    """Return *ranks* hosts with one process each, joined by TCP over Ethernet, as gloo uses it.

    What communication costs the processes is what the preset "shaped-links" says.

    Parameters
    ----------
    ranks, gbit
        Number of hosts, and the rate of each host's link in 10^9 bits per second and direction.
    racks, uplink_gbit
        Split the hosts evenly, in order, over so many switches, each joined to the others by a
        link of this rate.
    latency_ns, burst_bytes
        Of each host's link; see `Link`.

    Examples
    --------
    >>> ethernet(4, 1.0, racks=2, uplink_gbit=0.3).switches_above(3)
    ['rack1']
    """
    rate = positive(gbit, "gbit") / 8
    if ranks < 1:
        raise TransformError(f"a cluster of {ranks} ranks: at least 1 is needed")
    nic = _tcp_link("nic", rate, latency_ns, burst_bytes)
    machine = nx.Graph()
    machine.add_edge("cpu0", OUTSIDE, link=nic, count=1)
    levels: tuple[Level, ...] = ()
    if racks is not None:
        if not 1 <= racks <= ranks:
            raise TransformError(f"{ranks} ranks do not go into {racks} racks")
        uplink = positive(gbit if uplink_gbit is None else uplink_gbit, "uplink_gbit") / 8
        levels = (Level("rack", -(-ranks // racks), _tcp_link("uplink", uplink)),)
    return Cluster(
        name=f"{ranks} ranks at {gbit:g} Gbit/s",
        device="",
        transport="tcp",
        devices=("cpu0",),
        machine=machine,
        machines=ranks,
        levels=levels,
        start=Start(base_us=STARTUP_US),
        host=read_cluster(MEASURED).host,
    )


def _tcp_link(name: str, rate: float, latency_ns: int = 0, burst_bytes: int = 0) -> Link:
    return Link(name, OUTSIDE, rate, latency_ns, PAYLOAD / FRAME, SHAPED_SPREAD, burst_bytes)


def check(cluster: Cluster) -> Cluster:
    """Return *cluster* as it is, or say what makes it impossible.

    Raises
    ------
    TransformError
        No devices, no machines, a device that no link reaches, machines without a network, or
        levels that do not nest.
    """
    name, graph = f"cluster {cluster.name!r}", cluster.machine
    if not cluster.devices:
        raise TransformError(f"{name} has no devices")
    if cluster.machines < 1:
        raise TransformError(f"{name}: {cluster.machines} machines, at least 1 is needed")
    if cluster.machines > 1 and OUTSIDE not in graph:
        raise TransformError(
            f"{name} has {cluster.machines} machines, but none of its wires leads to {OUTSIDE!r}"
        )
    reached = nx.node_connected_component(graph, cluster.devices[0])
    cut = [node for node in graph if node not in reached]
    if cut:
        raise TransformError(
            f"{name} is disconnected: no way from {cluster.devices[0]!r} to {min(cut)!r}"
        )
    sizes = [level.machines for level in cluster.levels]
    if any(above <= below or above % below for below, above in pairwise(sizes)):
        raise TransformError(
            f"{name}: its levels join {sizes} machines, each must be a multiple of the one before"
        )
    return cluster


def load_cluster(name_or_path: str, nodes: int | None = None) -> Cluster:
    """Read a preset or a file; *nodes* says how many machines there are, if not as it says.

    Raises
    ------
    TransformError
        There is no such preset or file, or it cannot be used; the text says why.

    Examples
    --------
    >>> load_cluster("dgx-a100", nodes=2).size
    16
    """
    return _check_once(read_cluster(name_or_path), nodes)


@lru_cache(maxsize=64)
def _check_once(cluster: Cluster, nodes: int | None) -> Cluster:
    """Keep one object per cluster, since what is known about its topology is kept by object."""
    return check(cluster if nodes is None else replace(cluster, machines=nodes))
