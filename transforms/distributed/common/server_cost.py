"""Parameter servers: who sends how much to whom, and what a server does with it.

In: a cluster with workers and servers in it, and bytes. Out: times of pushing to all servers, of an
update, and of pulling from all servers; the tasks of the optimizer, which they replace.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from foretrace.errors import TransformError
from foretrace.transforms.cluster.link_load import flow_traffic
from foretrace.transforms.cluster.model import OUTSIDE
from foretrace.transforms.collectives.cost import collective_cost
from foretrace.transforms.costs.memcpy_cost import HOST_GBPS
from foretrace.transforms.costs.optimizer_traffic import host_update
from foretrace.transforms.costs.rules import machine_rate
from foretrace.transforms.edit.columns import Mask, is_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foretrace.graph.model import Graph
    from foretrace.transforms.cluster.placement import Placement

PASSES = 8
"""Passes over the parameters of an update with momentum on a CPU: velocity is scaled (2), takes the
gradient (3), parameters take the velocity (3)."""

MOST_PAIRS = 1_000_000
"""Flows between workers and servers that are laid over the links in less than ten seconds."""


@dataclass(frozen=True)
class ServerPlacement:
    """Workers and their servers, each of which holds an equal share of the parameters.

    Where ``apart`` is false, every worker's machine also serves, and sends and receives over the
    same links. Where ``ingress`` is false, only what a machine sends is limited.
    """

    placed: Placement
    workers: tuple[int, ...]
    servers: tuple[int, ...]
    ingress: bool = True

    @property
    def apart(self) -> bool:
        """Whether servers have machines of their own."""
        return not set(self.workers) & set(self.servers)

    @property
    def start_ns(self) -> int:
        """Return what a send takes beside its bytes."""
        pair = next(((w, s) for w in self.workers for s in self.servers if w != s), None)
        return 0 if pair is None else collective_cost(self.placed.cluster, pair, "send", 0).ns

    def push_ns_per_byte(self, *, together: bool) -> float:
        """Return how long a worker takes per byte that it sends, split over all servers.

        All workers do so *together*, or one alone.
        """
        return self._ns_per_byte(self._pairs(together=together))

    def pull_ns_per_byte(self, *, together: bool) -> float:
        """Return how long a worker takes per byte that it gets from all servers."""
        return self._ns_per_byte([(s, w) for w, s in self._pairs(together=together)])

    def _pairs(self, *, together: bool) -> list[tuple[int, int]]:
        """Return every worker, or the first one, with every server."""
        workers = self.workers if together else self.workers[:1]
        if len(workers) * len(self.servers) > MOST_PAIRS:
            raise TransformError(
                f"{len(workers):,} workers x {len(self.servers):,} servers exchange too many "
                f"flows; up to {MOST_PAIRS:,} are modelled"
            )
        return [(worker, server) for worker in workers for server in self.servers]

    def _ns_per_byte(self, pairs: Sequence[tuple[int, int]]) -> float:
        """Return how long flows between *pairs* take, all at once, each of a server's share."""
        flows = tuple((a, b, 1 / len(self.servers)) for a, b in pairs if a != b)
        if not flows:
            return 0.0
        loads = flow_traffic(self.placed.cluster, flows).loads
        inwards = f"{OUTSIDE}>"
        return max(ns for link, ns in loads.items() if self.ingress or not link.startswith(inwards))


def update_ns(graph: Graph, size: float, gradients: int, gbps: float | None = None) -> int:
    """Return how long a server takes to add up so many *gradients* of *size* bytes and to update.

    They are stacked (read and written), their mean is taken, and parameters are updated; all at
    *gbps*, where that is given.
    """
    summing = 3 * gradients + 1 if gradients > 1 else 0
    copying, updating = (machine_rate(graph, f"{what}_gbps") for what in ("copy", "update"))
    passes_ns = summing / (gbps or copying or HOST_GBPS) + PASSES / (gbps or updating or HOST_GBPS)
    return round(passes_ns * size)


def update_tasks(graph: Graph) -> Mask:
    """Return the tasks of the optimizer, which the servers run instead."""
    kernels = is_in(graph.tasks["phase"], "optimizer") & is_in(graph.tasks["kind"], "kernel")
    return host_update(graph) | kernels
