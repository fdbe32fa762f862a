"""The same job on other devices of its cluster: packed, spread, or along the rails."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.errors import TransformError
from foretrace.transforms.cluster.placement import Placement, place_workers
from foretrace.transforms.cluster.presets import load_cluster
from foretrace.transforms.distributed.common.recast_collectives import recost
from foretrace.transforms.distributed.common.workers import with_workers, workers_of
from foretrace.transforms.edit.parameters import choice
from foretrace.transforms.edit.provenance import add_note

if TYPE_CHECKING:
    from foretrace.graph.model import Graph
    from foretrace.transforms.cluster.model import Cluster

POLICIES = ("packed", "spread", "rail")
SHOWN = 16
"""How many devices a note lists."""


def placement(graph: Graph, *, to: str | list[int] = "packed", cluster: str | None = None) -> Graph:
    """Run the same workers on other devices.

    Parameters
    ----------
    graph
        A job of several workers, after ddp(...) and its like.
    to
        "packed": machine after machine is filled. "spread": neighbours in the ring are on machines
        that are far apart, one device of each before a second of any. "rail": neighbours are the
        same device of different machines. Or the device of each worker.
    cluster
        Another cluster, a preset or a file.

    Notes
    -----
    Assumes: each collective gets shorter or longer as its cost in the two places says: what its
    flows load the links with, and the slowest of these. Everything else stays.
    Unknown: other jobs on the same links; NCCL, which orders the devices of a machine itself.
    Source: runs in two racks over a shared uplink (docs/accuracy.md).

    Examples
    --------
    >>> from foretrace.transforms.cluster.presets import ethernet
    >>> from foretrace.graph.literal import literal
    >>> graph = literal(
    ...     [("all_reduce", "collective", 0, 175_000_000, "communication")],
    ...     columns={"bytes": [4 * 2**20]},
    ... )
    >>> racks = Placement(ethernet(4, 1.0, racks=2, uplink_gbit=0.3), (0, 1, 2, 3))
    >>> round(placement(with_workers(graph, racks), to="spread").tasks.work_ns.iat[0] / 1e6)
    350
    """
    before = workers_of(graph, "placement")
    where = before.cluster if cluster is None else load_cluster(cluster)
    workers = len(before.devices)
    devices = place_workers(
        workers,
        cluster=where,
        placement=to if isinstance(to, list) else _place(where, workers, to),
    ).devices
    after = Placement(where, devices)
    if after == before:
        return graph
    shown = ", ".join(map(str, devices[:SHOWN])) + (", ..." if workers > SHOWN else "")
    return add_note(
        with_workers(recost(graph, before, after), after),
        f"placement: {workers} workers on devices {shown} of {where.name}",
    )


def _place(cluster: Cluster, workers: int, policy: str) -> list[int]:
    """Return the devices of *workers* by one of `POLICIES`."""
    choice("to", policy, POLICIES)
    if workers > cluster.size:
        raise TransformError(
            f"{workers} workers do not fit into cluster {cluster.name!r} of {cluster.size} devices"
        )
    if policy == "spread":
        return sorted(range(cluster.size), key=lambda device: _turn(cluster, device))[:workers]
    packed = list(range(workers))
    if policy == "rail":
        packed.sort(key=lambda device: (device % len(cluster.devices), device))
    return packed


def _turn(cluster: Cluster, device: int) -> tuple[int, ...]:
    """Return when *device* gets a worker: places within each level, the innermost first."""
    machine, at = divmod(device, len(cluster.devices))
    turns = [at]
    inside = 1
    for level in cluster.levels:
        turns.append(machine % level.machines // inside)
        inside = level.machines
    return (*turns, machine // inside)
