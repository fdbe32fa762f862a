"""Another network under a job of several workers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from foretrace.errors import TransformError
from foretrace.transforms.cluster.placement import (
    Placement,
    gigabits,
    outside_gb_per_s,
    workers_placed,
)
from foretrace.transforms.distributed.common.overlap import host_shares
from foretrace.transforms.distributed.common.recast_collectives import recost
from foretrace.transforms.distributed.common.recorded_latency import recorded_latency
from foretrace.transforms.distributed.common.transfers import communicates
from foretrace.transforms.distributed.common.workers import with_workers
from foretrace.transforms.edit.parameters import positive
from foretrace.transforms.edit.primitives import scale
from foretrace.transforms.edit.provenance import add_note
from foretrace.transforms.edit.select import has_device, require

if TYPE_CHECKING:
    from foretrace.graph.model import Graph
    from foretrace.transforms.edit.columns import Mask


def network(
    graph: Graph, *, bandwidth: str | float | None = None, latency: float | None = None
) -> Graph:
    """Run the job over a network of another bandwidth or latency.

    Parameters
    ----------
    graph
        A job of several workers: recorded, or after ddp(...) and its like.
    bandwidth
        Of all links of a machine together, as in "25Gbps"; or a number: so many times that of now.
    latency
        Of these links in microseconds.

    Notes
    -----
    Assumes: each collective gets shorter or longer as its cost on the two networks says, alone on
    its links. What was recorded on a network that nothing tells scales with its bytes, but for its
    latency, which no bandwidth changes: collectives of several sizes tell it, else what is usual.
    Unknown: another algorithm or other buckets that one would choose for the other network.
    Source: the costs of collectives (docs/clusters.md); Daydream's bandwidth what-if (ATC 2020).

    Examples
    --------
    >>> from foretrace.graph.literal import literal
    >>> tasks = [("ncclAllReduce", "collective", 0, us * 1_000, None) for us in (12, 112)]
    >>> graph = literal(tasks, columns={"bytes": [4e3, 4e6]})
    >>> network(graph, bandwidth=2.0).tasks.work_ns.tolist()
    [11950, 61950]
    """
    if bandwidth is None and latency is None:
        raise TransformError('network needs bandwidth=..., as in "25Gbps", or latency=... in us')
    if latency is not None:
        positive("latency", latency)
    transfers = require(communicates(graph), graph, "collective; put ddp(workers=...) before")
    placed = workers_placed(graph)
    if placed is None:
        return _speed_up(graph, transfers, bandwidth, latency)
    if isinstance(bandwidth, str):
        gb_per_s = gigabits(bandwidth) / 8
    else:
        times = 1.0 if bandwidth is None else positive("bandwidth", bandwidth)
        gb_per_s = outside_gb_per_s(placed.cluster) * times
    latency_ns = None if latency is None else round(1000 * latency)
    other = placed.cluster.with_network(gb_per_s=gb_per_s, latency_ns=latency_ns)
    changed = _move(graph, placed, Placement(other, placed.devices))
    text = f"network: {8 * gb_per_s:.4g} Gbit/s between machines"
    return add_note(changed, text + ("" if latency is None else f", {latency:g} us"))


def _move(graph: Graph, before: Placement, after: Placement) -> Graph:
    """Return the job on another network: other collectives, which slow computing otherwise."""
    changed = with_workers(recost(graph, before, after), after)
    shares = graph.state.network
    if shares is None or has_device(graph):
        return changed
    compute, transfer = host_shares(after.cluster)
    return changed.with_state(
        network=replace(shares, compute_share=compute, transfer_share=transfer)
    )


def _speed_up(
    graph: Graph, transfers: Mask, bandwidth: str | float | None, latency: float | None
) -> Graph:
    """Return a recorded job, on a network that nothing tells, whose bytes pass faster."""
    if isinstance(bandwidth, str) or latency is not None or bandwidth is None:
        raise TransformError(
            "the network of this recording is unknown: give bandwidth as a number, so many times "
            "that of now, or say where it runs by ddp(workers=..., cluster=...)"
        )
    faster = positive("bandwidth", bandwidth)
    latency_range = recorded_latency(graph, transfers)
    stays = getattr(latency_range, f"{graph.state.latency_end}_ns")
    work = graph.tasks["work_ns"].to_numpy()
    moved = np.maximum(work - stays, 0)
    where = transfers & (moved > 0)
    factor = (np.minimum(work, stays) + moved / faster) / np.maximum(work, 1)
    changed = scale(graph, where, factor, cost="user").with_state(latency_range=latency_range)
    text = f"network: bytes pass {faster:g} times as fast, {stays / 1_000:.3g} us of latency stay"
    return add_note(changed, text)
