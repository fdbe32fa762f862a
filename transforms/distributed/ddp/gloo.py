"""DDP on CPUs over gloo: its copies, its all-reduces on the link, and the waiting for them.

In: the graph of one rank and an `ExchangePlan`. Out: the graph with both. Gradients are copied into
their bucket as they become ready, the main thread issues a bucket's all-reduce inside backward, and
after backward it waits for one bucket after another and copies the gradients out.

The constants were seen on development runs: three models, 100 Mbit/s to 1 Gbit/s, two ranks of one
core each. The recorded runs over shaped links (docs/accuracy.md) came later and changed none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from foretrace.transforms.collectives.all_reduces import PREFIX
from foretrace.transforms.costs.assumed import Assumed
from foretrace.transforms.costs.rules import machine_rate
from foretrace.transforms.distributed.common.link_credit import credit_ns, spend_credit
from foretrace.transforms.distributed.common.overlap import slow_overlaps
from foretrace.transforms.distributed.common.transfers import add_lane, send, wait
from foretrace.transforms.distributed.ddp.tasks import (
    BROADCAST,
    COMPRESS,
    COPY_IN,
    COPY_OUT,
    TRANSFER,
    backward_ends,
    first_forward,
    last_inserted,
    late_edges,
)
from foretrace.transforms.edit.columns import Rows, is_in
from foretrace.transforms.edit.primitives import insert

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from foretrace.graph.model import Graph
    from foretrace.transforms.cluster.model import Cluster
    from foretrace.transforms.distributed.ddp.plan import ExchangePlan

COPY_NS_PER_BYTE = 0.2
"""Copying a gradient into its bucket, or out of it. A run of DDP whose hook does nothing takes 0.2
to 0.7 ns per byte longer than one without; 0.4 both ways, set by eye on the development runs."""
ISSUE_NS = 100_000
"""Host time of ``c10d::allreduce_``, which only issues (profiles of a rank: 0.02 to 0.2 ms)."""
WAKE = Assumed(
    "time to wake the thread that sleeps on a collective, over the cluster file's",
    *(1.0, 0.25, 1.0),
    "one tick of the scheduler: 4 ms at 250 per second, 1 ms at 1,000 (presets: 4 ms)",
    ("development runs of DDP, models conv, gpt and mlp",),
    more_is_longer=True,
)
BUCKET = Assumed(
    "cost of a bucket behind computing, over the cluster file's",
    *(1.0, 0.3, 2.0),
    "300 us in the presets, set by eye on the development runs",
    ("development runs of DDP, models conv, gpt and mlp",),
    more_is_longer=True,
)
CAST_BYTES = 6
"""A cast between 32 and 16 bits moves 6 bytes per element."""
WIDTH = 4


def exchange_on_host(graph: Graph, plan: ExchangePlan) -> Graph:
    """Return *graph*, a CPU job, with the exchanges of *plan*."""
    count, members = len(graph.tasks), plan.members
    host = is_in(graph.tasks["kind"], "host", "launch")
    hosts = np.array([each.host for each in members], np.int64)
    ends = backward_ends(graph, host, hosts[plan.last_members], plan.per_exchange("turn"))
    graph = _insert_broadcasts(graph, plan)
    sizes = np.array([0 if each.rows else each.bytes for each in members], np.int64)
    copy_ns = np.rint(sizes * COPY_NS_PER_BYTE).astype(np.int64)
    graph, copied = insert(graph, hosts, name=COPY_IN, kind="host", work_ns=copy_ns, cost="prior")
    ready = copied[plan.last_members]
    cast_ns = _cast_ns(graph, plan.per_exchange("bytes")) * plan.compressed
    if plan.compressed:
        graph, ready = insert(
            graph, ready, name=COMPRESS, kind="host", work_ns=cast_ns, cost="roofline"
        )
    graph, link = add_lane(graph)
    graph, transfers = send(
        graph,
        link,
        ready,
        call=f"{PREFIX}issue all_reduce",
        call_ns=ISSUE_NS,
        name=TRANSFER,
        work_ns=_link_ns(graph, plan, ready),
        bytes=np.array(plan.per_exchange("wire_bytes"), np.float64),
        cost=plan.sources,
    )
    graph = late_edges(graph, ready, transfers, plan.late_ns, ISSUE_NS)
    out_ns = cast_ns + np.rint(
        np.array(plan.per_exchange("copied_bytes")) * COPY_NS_PER_BYTE * plan.copies_back
    )
    graph, copies = insert(
        graph,
        last_inserted(graph, ends, count),
        name=COPY_OUT,
        kind="host",
        work_ns=out_ns.astype(np.int64),
        phase="communication",
        cost="prior",
    )
    graph = wait(graph, transfers, copies, return_ns=wake_ns(plan.placed.cluster))
    return slow_overlaps(graph, [link], plan.placed.cluster)


def _insert_broadcasts(graph: Graph, plan: ExchangePlan) -> Graph:
    """Let each forward pass begin with the buffers of rank 0."""
    if not plan.broadcast_ns:
        return graph
    first = first_forward(graph, np.flatnonzero(is_in(graph.tasks["kind"], "host", "launch")))
    graph, _ = insert(
        graph,
        first,
        place="before",
        name=BROADCAST,
        kind="host",
        phase="communication",
        work_ns=plan.broadcast_ns,
        cost="prior",
    )
    return graph


def _cast_ns(graph: Graph, sizes: Sequence[int]) -> npt.NDArray[np.int64]:
    """Return the time to cast gradients of *sizes* bytes to 16 bits, or back."""
    rate = machine_rate(graph, "cast_gbps") or machine_rate(graph, "copy_gbps")
    each = COPY_NS_PER_BYTE if rate is None else CAST_BYTES / WIDTH / rate
    return np.rint(np.array(sizes) * each).astype(np.int64)


def _link_ns(graph: Graph, plan: ExchangePlan, ready: Rows) -> Rows:
    """Return how long each transfer occupies the link, what a shaped link lends taken off."""
    bucket_us = plan.placed.cluster.host.bucket_us
    bucket_ns = 1000 * bucket_us * (BUCKET.now() if bucket_us else 1.0)
    work = np.array([exchange.cost.ns + bucket_ns for exchange in plan.exchanges], np.float64)
    lent_ns = credit_ns(plan.placed.cluster)
    if not lent_ns:
        return np.rint(work).astype(np.int64)
    start = graph.tasks["start_ns"].to_numpy()[ready]
    steps = np.array(plan.per_exchange("step"))
    for step in np.unique(steps).tolist():
        mine = steps == step
        work[mine] = spend_credit(work[mine], start[mine], lent_ns)
    return np.rint(work).astype(np.int64)


def wake_ns(cluster: Cluster) -> int:
    """Return the time from the end of a collective to the return of a thread that waits for it."""
    wake_us = cluster.host.wake_us
    return round(1000 * wake_us * (WAKE.now() if wake_us else 1.0))
