"""The workers of a job: where they run, or are to run, and the graph as the job of so many.

In: a graph, and where its workers are to run. Out: their places, or one clear sentence why not; the
graph with them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from foretrace.errors import TransformError
from foretrace.transforms.cluster.placement import place_workers, workers_placed
from foretrace.transforms.distributed.common.transfers import communicates
from foretrace.transforms.edit.parameters import whole
from foretrace.transforms.edit.provenance import grow_samples
from foretrace.transforms.edit.select import has_device

if TYPE_CHECKING:
    from foretrace.graph.model import Graph
    from foretrace.transforms.cluster.model import Cluster
    from foretrace.transforms.cluster.placement import Placement


def place_alone(
    graph: Graph,
    what: str,
    workers: int,
    *,
    cluster: str | None,
    network: str | None,
    nodes: int | None,
    servers: int = 0,
) -> Placement:
    """Return where *workers* of *graph*, the job of one of them, and *servers* are to run.

    Raises
    ------
    TransformError
        The job has several workers already, the cluster is none for it, or they do not fit; *what*
        is the scheme.
    """
    whole("workers", workers, 1)
    if communicates(graph).any():
        raise TransformError(
            f"{what} starts from the recording of a job on one worker; this one has several"
        )
    count = workers + servers
    try:
        placed = place_workers(count, cluster=cluster, network=network, nodes=nodes)
    except TransformError as error:
        if not servers or str(count) not in str(error):
            raise
        raise TransformError(f"{error} ({servers} of these {count} serve)") from None
    check_transport(graph, placed.cluster)
    return placed


def check_transport(graph: Graph, cluster: Cluster) -> None:
    """Refuse a *cluster* that joins devices where *graph* has none."""
    if not has_device(graph) and cluster.transport == "nccl":
        raise TransformError(
            f"cluster {cluster.name!r} joins devices, and this is a CPU job; give a cluster with "
            'transport = "tcp", or network="25Gbps"'
        )


def of_workers(graph: Graph, workers: int, placed: Placement | None = None) -> Graph:
    """Return *graph* as the job of so many workers; *placed*, where a what-if may move them."""
    graph = grow_samples(graph, workers)
    graph = replace(graph, meta=replace(graph.meta, world_size=workers))
    return graph if placed is None else with_workers(graph, placed)


def workers_of(graph: Graph, what: str) -> Placement:
    """Return the workers of *graph* and where they are.

    Raises
    ------
    TransformError
        Nothing tells; *what* is the what-if that needs them.
    """
    placed = workers_placed(graph)
    if placed is None:
        raise TransformError(
            f"{what} needs a job whose workers and network are known: put ddp(workers=..., "
            "cluster=...) before it"
        )
    return placed


def with_workers(graph: Graph, placed: Placement) -> Graph:
    """Return *graph* as a job of the workers *placed*."""
    return graph.with_state(workers=placed)
