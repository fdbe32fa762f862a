"""The gradients of a recorded DDP job that names no operators: sizes from DDP's own copies.

Without ``gradient_as_bucket_view`` DDP copies every gradient out of its bucket after the
all-reduce, bucket after bucket: those copies' bytes are the gradients in the order in which
backward finishes them. A bucket is complete at the last kernel launched before its all-reduce.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foretrace.transforms.collectives.all_reduces import all_reduces
from foretrace.transforms.distributed.common.buckets import caps, fill_buckets
from foretrace.transforms.distributed.common.gradient_ready import evenly, last_launched, per_step
from foretrace.transforms.edit.columns import Mask, Rows, is_in, matches
from foretrace.transforms.edit.select import call_of

if TYPE_CHECKING:
    from foretrace.graph.model import Graph


class CopiedGradient(NamedTuple):
    """One gradient: its step and bytes, the kernel after which it is final, and that one's call."""

    step: int
    bytes: int
    row: int
    host: int


def read_copies(graph: Graph) -> list[CopiedGradient]:
    """Return the gradients of a recorded DDP job, by step; none where it makes no such copies.

    Its buckets must be those of torch's default caps. Within a bucket gradients are spread evenly
    over the kernels since the bucket before.
    """
    copies = dict(per_step(graph, bucket_copies(graph)))
    sizes = graph.tasks["bytes"].to_numpy()
    gradients: list[CopiedGradient] = []
    for step, reduced in per_step(graph, all_reduces(graph)):
        mine = sizes[copies[step]].astype(np.int64).tolist() if step in copies else []
        buckets = fill_buckets(mine, caps())
        if not mine or len(buckets) != len(reduced):
            return []
        gradients += _place(graph, step, mine, buckets, reduced)
    return gradients


def bucket_copies(graph: Graph) -> Mask:
    """Return DDP's copies out of its buckets: within a device, between backward and optimizer."""
    tasks = graph.tasks
    copies = is_in(tasks["kind"], "memcpy") & is_in(tasks["phase"], "backward")
    return copies & matches(tasks["name"], "DtoD") & (tasks["bytes"].to_numpy() > 0)


def ready_rows(graph: Graph, reduced: Rows) -> Rows:
    """Return, per all-reduce, the last kernel launched before it: its bucket's last gradient."""
    return last_launched(graph, call_of(graph)[reduced])


def _place(
    graph: Graph, step: int, sizes: list[int], buckets: list[list[int]], reduced: Rows
) -> list[CopiedGradient]:
    """Return the gradients of one step, each bucket's spread over the kernels that precede it."""
    ready = ready_rows(graph, reduced)
    lane, start = (graph.tasks[c].to_numpy() for c in ("lane", "start_ns"))
    here = np.flatnonzero((lane == lane[ready[-1]]) & (graph.tasks["step"].to_numpy() == step))
    kernels = here[np.lexsort((here, start[here]))]
    kernels = kernels[np.argmax(is_in(graph.tasks["phase"], "backward")[kernels]) :]
    at = np.searchsorted(start[kernels], start[ready])
    calls = call_of(graph)
    gradients: list[CopiedGradient] = []
    for bucket, begin, end in zip(buckets, [-1, *at[:-1]], at, strict=True):
        rows = evenly(kernels[min(begin + 1, end) : end + 1], len(bucket))
        gradients += [
            CopiedGradient(step, sizes[i], row, int(calls[row]))
            for i, row in zip(bucket, rows.tolist(), strict=True)
        ]
    return gradients
