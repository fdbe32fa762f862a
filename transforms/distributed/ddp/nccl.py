"""DDP on devices over NCCL: its copies, its all-reduces on a stream of their own, the waits.

In: the graph of one rank and an `ExchangePlan`. Out: the graph with both. A kernel copies each
gradient into its bucket, a bucket's all-reduce runs on the communication stream after its last
copy, and after backward the compute stream waits for one bucket after another and copies the
gradients out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from foretrace.errors import TransformError
from foretrace.transforms.collectives.all_reduces import PREFIX
from foretrace.transforms.costs.devices import hardware
from foretrace.transforms.costs.rules import STREAMING, floor_ns, streaming_ns
from foretrace.transforms.distributed.common.overlap import slow_overlaps
from foretrace.transforms.distributed.common.transfers import add_lane, device_of, send, wait
from foretrace.transforms.distributed.ddp.tasks import (
    BROADCAST,
    COMPRESS,
    COPY_IN,
    COPY_OUT,
    DECOMPRESS,
    TRANSFER,
    backward_ends,
    first_forward,
    last_inserted,
    late_edges,
    wait_behind,
)
from foretrace.transforms.edit.columns import Rows, is_in
from foretrace.transforms.edit.primitives import insert_kernels
from foretrace.transforms.edit.select import call_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from foretrace.graph.model import Graph
    from foretrace.transforms.distributed.ddp.plan import ExchangePlan

ISSUE_NS = 60_000
"""Host time to issue an all-reduce: c10d's operator, events and the launch (prior)."""
MEMORY_GBPS = 900.0
"""Bandwidth of a device that is not in the table (a V100's; prior)."""
CAST_BYTES, HALVED_BYTES = 6, 4
"""Bytes per element of a cast between 32 and 16 bits, and of scaling in 16 bits."""
WIDTH = 4


def exchange_on_device(graph: Graph, plan: ExchangePlan) -> Graph:
    """Return *graph*, a job on a device, with the exchanges of *plan*.

    Raises
    ------
    TransformError
        The launch of a kernel that finishes a bucket is unknown.
    """
    count, members = len(graph.tasks), plan.members
    rows = np.array([each.row for each in members], np.int64)
    kernel = is_in(graph.tasks["kind"], "kernel")
    ends = backward_ends(graph, kernel, rows[plan.last_members], plan.per_exchange("turn"))
    graph = _insert_broadcasts(graph, plan)
    graph, copied = _kernels(graph, rows, COPY_IN, [2 * each.bytes for each in members])
    ready = copied[plan.last_members]
    if plan.compressed:
        moved = [(CAST_BYTES + HALVED_BYTES) * size // WIDTH for size in plan.per_exchange("bytes")]
        graph, ready = _kernels(graph, ready, COMPRESS, moved)
    calls = call_of(graph)[ready]
    if (calls < 0).any():
        raise TransformError("ddp: the launches of this trace's backward kernels are unknown")
    device = device_of(graph, int(ready[0]))
    ends = last_inserted(graph, ends, count)
    graph, first_out = _copies_out(graph, plan, ends)
    graph, stream = add_lane(graph, kind="stream", device=device)
    graph, transfers = send(
        graph,
        stream,
        ready,
        calls=calls,
        call=f"{PREFIX}issue all_reduce",
        call_ns=ISSUE_NS,
        name=TRANSFER,
        work_ns=np.array([exchange.cost.ns for exchange in plan.exchanges], np.int64),
        bytes=np.array(plan.per_exchange("wire_bytes"), np.float64),
        cost=plan.sources,
    )
    graph = late_edges(graph, ready, transfers, plan.late_ns)
    graph = wait(graph, transfers, first_out)
    bare = first_out < 0
    graph = wait_behind(graph, transfers[bare], ends[bare])
    return slow_overlaps(graph, [stream], plan.placed.cluster)


def _kernels(
    graph: Graph, anchors: Rows, name: str, moved: Sequence[int], **columns: Any
) -> tuple[Graph, Rows]:
    """Insert a memory-bound kernel behind each of *anchors*; *moved* are the bytes each moves."""
    source = "roofline" if hardware(graph) else "prior"
    return insert_kernels(
        graph, anchors, name=name, work_ns=_moving_ns(graph, moved), cost=source, **columns
    )


def _moving_ns(graph: Graph, moved: Sequence[int]) -> npt.NDArray[np.int64]:
    """Return how long kernels take that move so many bytes of device memory."""
    device, floor = hardware(graph), floor_ns(graph)
    each = [
        streaming_ns(size, device, floor) or max(floor, size / (MEMORY_GBPS * STREAMING))
        for size in moved
    ]
    return np.rint(each).astype(np.int64)


def _copies_out(graph: Graph, plan: ExchangePlan, ends: Rows) -> tuple[Graph, Rows]:
    """Decompress buckets and copy gradients out behind *ends*; return each exchange's first kernel.

    −1 stands for an exchange that leaves nothing to do: its bucket is where the gradients live.
    """
    names: list[str] = []
    moved: list[int] = []
    first = np.full(len(ends), -1, np.int64)
    count = np.zeros(len(ends), np.int64)
    for at, exchange in enumerate(plan.exchanges):
        before = len(names)
        if plan.compressed:
            names.append(DECOMPRESS)
            moved.append(CAST_BYTES * exchange.bytes // WIDTH)
        if plan.copies_back:
            names += [COPY_OUT] * len(exchange.members)
            moved += [2 * each.bytes for each in exchange.members]
        count[at] = len(names) - before
        first[at] = before if count[at] else -1
    if not names:
        return graph, first
    graph, rows = _kernels(graph, np.repeat(ends, count), pd.Categorical(names), moved)
    return graph, np.where(first >= 0, rows[first], -1)


def _insert_broadcasts(graph: Graph, plan: ExchangePlan) -> Graph:
    """Begin each forward pass with the buffers of rank 0: sent packed, copied one by one."""
    if not plan.broadcast_ns:
        return graph
    kernels = np.flatnonzero(is_in(graph.tasks["kind"], "kernel"))
    first = first_forward(graph, kernels)
    work = np.append(plan.broadcast_ns, _moving_ns(graph, [2 * size for size in plan.buffers]))
    graph, _ = insert_kernels(
        graph,
        np.repeat(first, len(work)),
        place="before",
        name=BROADCAST,
        work_ns=np.tile(work, len(first)),
        cost="prior",
    )
    return graph
