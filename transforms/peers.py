"""Who communicates with whom in a job: beside its graph, so that a later what-if can re-cost it.

In: what `ddp` and its like were given. Out: a `Peers` in ``Graph.extra``, and what a collective
between them costs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from foretrace.errors import TransformError
from foretrace.transforms.collectives import collective_cost

if TYPE_CHECKING:
    from foretrace.graph.model import Graph
    from foretrace.transforms.cluster import Cluster
    from foretrace.transforms.collectives import Cost
    from foretrace.transforms.columns import Rows

KEY = "peers"
"""Name in `Graph.extra`."""
_KINDS = (
    ("reduce_scatter", re.compile(r"reduce_?scatter", re.IGNORECASE)),
    ("all_reduce", re.compile(r"all_?reduce", re.IGNORECASE)),
    ("all_gather", re.compile(r"all_?gather", re.IGNORECASE)),
    ("all_to_all", re.compile(r"all_?to_?all", re.IGNORECASE)),
    ("broadcast", re.compile(r"broadcast", re.IGNORECASE)),
    ("send", re.compile(r"send|recv|push|pull", re.IGNORECASE)),
)
"""Kind of a collective by the name of its task, recorded or predicted; the first that fits."""


@dataclass(frozen=True)
class Peers:
    """The ranks of a job: rank ``i`` is at ``devices[i]`` of ``cluster``, and ``backend`` is
    "nccl" or "gloo".
    """

    cluster: Cluster
    devices: tuple[int, ...]
    backend: str = "nccl"

    def cost(self, kind: str, size_bytes: float) -> Cost:
        """Return what a collective of all ranks costs; *size_bytes* is that of the whole tensor."""
        return collective_cost(self.cluster, self.devices, kind, size_bytes)


def peers_of(graph: Graph, what: str) -> Peers:
    """Return the peers of *graph*, or say that *what* needs them.

    Raises
    ------
    TransformError
        The job has no peers yet.
    """
    found: Peers | None = graph.extra.get(KEY)
    if found is None:
        raise TransformError(
            f"{what} needs a job of several workers whose network is known: put ddp(workers=..., "
            "cluster=...) before it"
        )
    return found


def with_peers(graph: Graph, peers: Peers) -> Graph:
    """Return *graph* with *peers* in place of those it had."""
    return replace(graph, extra={**graph.extra, KEY: peers})


def kind_of(name: str) -> str | None:
    """Return the kind of collective that a task of this name runs; ``None`` for anything else.

    >>> kind_of("ncclDevKernel_AllReduce_Sum_f32_RING_LL"), kind_of("gemm")
    ('all_reduce', None)
    """
    return next((kind for kind, pattern in _KINDS if pattern.search(name)), None)


def collectives(graph: Graph, kind: str) -> Rows:
    """Return the tasks that run collectives of this *kind*, in order of rows."""
    column = graph.tasks["name"].array
    of = np.array([*(kind_of(str(name)) == kind for name in column.categories), False])[column.codes]
    transfers = (graph.tasks["kind"] == "collective").to_numpy()
    return np.flatnonzero(of & transfers)
