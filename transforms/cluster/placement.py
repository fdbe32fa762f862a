"""Which cluster a job of several workers runs on, and on which of its devices.

In: what a user writes, such as ``workers=8, cluster="dgx-a100"`` or ``network="25Gbps"``. Out: a
`Cluster` and one device per worker.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from foretrace.errors import TransformError
from foretrace.transforms.cluster.model import OUTSIDE, Cluster
from foretrace.transforms.cluster.presets import ethernet, load_cluster
from foretrace.transforms.edit.parameters import whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foretrace.graph.model import Graph

BURST = re.compile(r"burst\s+(\d{1,9}(?:\.\d{1,9})?)\s*([KMG]?)(i?)B", re.IGNORECASE)
RATE = re.compile(r"^\s*([\d.]+)\s*([KMGT])(bps|bits?(/s)?|b/s|B/s|Bps)\s*", re.IGNORECASE)
SCALE = {"k": 1e-6, "m": 1e-3, "g": 1.0, "t": 1e3}


class Placement(NamedTuple):
    """The workers of a job: ``devices[i]`` of *cluster* is worker i."""

    cluster: Cluster
    devices: tuple[int, ...]


def workers_placed(graph: Graph) -> Placement | None:
    """Return the workers of *graph*, where they are known: what-ifs move or rewire them."""
    placed = graph.state.workers
    return placed if isinstance(placed, Placement) else None


def gigabits(text: str) -> float:
    """Return a rate such as "25Gbps" or "12.5 GB/s" in 10^9 bits per second.

    Raises
    ------
    TransformError
        The text is no rate above 0.

    Examples
    --------
    >>> gigabits("25Gbps"), gigabits("300 Mbit/s"), gigabits("12.5 GB/s")
    (25.0, 0.3, 100.0)
    """
    match = RATE.fullmatch(text) if isinstance(text, str) else None
    try:
        value = float(match[1]) if match else 0.0
    except ValueError:
        value = 0.0
    if match is None or value <= 0:
        raise TransformError(f'network={text!r} is no rate; write one as in network="25Gbps"')
    return value * SCALE[match[2].lower()] * (8.0 if match[3].startswith("B") else 1.0)


def split_burst(network: str) -> tuple[float, int | None]:
    """Return the rate of *network* in 10^9 bits per second, and its burst in bytes, if it says one.

    A shaped link, a token bucket, lets its burst pass at once after a pause.

    Raises
    ------
    TransformError
        The text is no rate, or what follows it is no burst.

    Examples
    --------
    >>> split_burst("300Mbps, burst 128KiB"), split_burst("25Gbps")
    ((0.3, 131072), (25.0, None))
    """
    rate, comma, burst = network.partition(",") if isinstance(network, str) else (network, "", "")
    gbit = gigabits(rate.strip() if comma else network)
    if not comma:
        return gbit, None
    match = BURST.fullmatch(burst.strip())
    if match is None:
        raise TransformError(
            f"network={network!r}: after the rate may come a burst, as in "
            'network="300Mbps, burst 128KiB"'
        )
    step = 1024 if match[3] else 1000
    return gbit, round(float(match[1]) * step ** " KMG".index(match[2].upper() or " "))


def place_workers(
    workers: int,
    *,
    cluster: str | Cluster | None = None,
    network: str | None = None,
    nodes: int | None = None,
    placement: Sequence[int] | None = None,
) -> Placement:
    """Return the cluster that *workers* run on, and their devices.

    Parameters
    ----------
    workers
        How many processes take part, one per device.
    cluster
        A preset, a file, or a `Cluster`.
    network
        Rate of the links between machines, and of shaped ones what they let pass after a pause
        ("300Mbps, burst 128KiB"); without a *cluster*, machines of one device each.
    nodes
        Number of machines that the workers fill evenly; by default as few as possible.
    placement
        The device of each worker, in the order of the ring; by default machine after machine.

    Raises
    ------
    TransformError
        Neither a cluster nor a network is given, or the workers do not fit.
    """
    whole("workers", workers, 1)
    if nodes is not None:
        whole("nodes", nodes, 1)
    if cluster is None and network is None:
        raise TransformError(
            f"nothing says what joins {workers} workers; give cluster=... (a preset or a file) or "
            'network="25Gbps"'
        )
    chosen = _cluster(workers, cluster, network, nodes)
    return Placement(chosen, _devices(chosen, workers, nodes, placement))


def _cluster(
    workers: int, cluster: str | Cluster | None, network: str | None, nodes: int | None
) -> Cluster:
    rate, burst = (None, None) if network is None else split_burst(network)
    if cluster is None:
        return ethernet(max(workers, nodes or 1), rate or 0.0, burst_bytes=burst or 0)
    if not isinstance(cluster, str | Cluster):
        raise TransformError(f"cluster={cluster!r} is neither a preset nor a file")
    chosen = cluster if isinstance(cluster, Cluster) else load_cluster(cluster)
    needed = nodes or -(-workers // len(chosen.devices))
    if needed > chosen.machines:
        chosen = load_cluster(cluster, nodes=needed) if isinstance(cluster, str) else chosen
    if rate is None:
        return chosen
    return chosen.with_network(gb_per_s=rate / 8, burst_bytes=burst)


def _devices(
    cluster: Cluster, workers: int, nodes: int | None, placement: Sequence[int] | None
) -> tuple[int, ...]:
    if placement is None:
        if nodes is not None and workers % nodes:
            raise TransformError(f"{workers} workers do not fill {nodes} nodes evenly")
        return cluster.packed(workers, None if nodes is None else workers // nodes)
    if not isinstance(placement, list | tuple) or len(placement) != workers:
        raise TransformError(f"placement={placement!r} does not name a device for each worker")
    for device in placement:
        if (
            isinstance(device, bool)
            or not isinstance(device, int)
            or device not in range(cluster.size)
        ):
            raise TransformError(
                f"placement names device {device!r}; cluster {cluster.name!r} has 0 to "
                f"{cluster.size - 1}"
            )
    if len(set(placement)) < workers:
        raise TransformError(f"placement={list(placement)} names a device twice")
    return tuple(placement)


def outside_gb_per_s(cluster: Cluster) -> float:
    """Return what all links between a machine and the network reach together; 0 without any."""
    edges = cluster.machine.edges(OUTSIDE, data=True) if OUTSIDE in cluster.machine else ()
    return sum(data["link"].gb_per_s * data["count"] for *_, data in edges)
