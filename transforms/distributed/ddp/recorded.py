"""Changes of a job that runs DDP already, from one rank's recording.

In: the graph of that rank and how DDP is to be set up. Out: the graph with other all-reduces: other
buckets, other workers, another network, no copies out of the buckets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from foretrace.errors import TransformError
from foretrace.transforms.collectives.all_reduces import PREFIX, all_reduces
from foretrace.transforms.collectives.cost import collective_cost
from foretrace.transforms.distributed.common.bucket_copies import (
    bucket_copies,
    ready_rows,
)
from foretrace.transforms.distributed.common.gradient_ready import per_step
from foretrace.transforms.distributed.common.overlap import overlap_share, slow_overlaps
from foretrace.transforms.distributed.common.transfers import add_lane, device_of, send, wait
from foretrace.transforms.distributed.ddp.plan import bucketed
from foretrace.transforms.distributed.ddp.tasks import (
    TRANSFER,
    backward_ends,
    late_edges,
    wait_behind,
)
from foretrace.transforms.edit.columns import Mask, Rows, is_in, matches
from foretrace.transforms.edit.primitives import scale
from foretrace.transforms.edit.remove import remove
from foretrace.transforms.edit.select import call_of, require

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from foretrace.graph.model import Graph
    from foretrace.transforms.cluster.model import Cluster
    from foretrace.transforms.cluster.placement import Placement
    from foretrace.transforms.distributed.common.buckets import Caps
    from foretrace.transforms.distributed.common.gradients import Gradient

    Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class RecordedSetup:
    """How the job is to run: what is ``None`` stays as recorded.

    ``placed`` are its workers on their network, ``limits`` the caps of its buckets; ``late_ns`` is
    how much later than this rank the slowest finishes a step.
    """

    placed: Placement | None = None
    limits: Caps | None = None
    copies_back: bool = True
    broadcasts: bool = True
    late_ns: int = 0


@dataclass(frozen=True)
class _Reduced:
    """All all-reduces in order: step, pass, bytes, and the kernel after which each may start.

    ``copy`` is the first copy out of the bucket, −1 for none.
    """

    step: Rows
    turn: list[int]
    bytes: Floats
    ready: Rows
    copy: Rows


@dataclass(frozen=True)
class _Gradients:
    """Per gradient: when its bucket could start if it were the last, and its copy out (−1: none).

    ``recorded`` are the buckets of the recording, as places in ``gradients``.
    """

    gradients: Sequence[Gradient]
    ready: Rows
    copy: Rows
    recorded: list[list[int]]

    def reduced(self, buckets: list[list[int]]) -> _Reduced:
        """Return the all-reduces of *buckets*."""
        return _Reduced(
            step=np.array([self.gradients[each[-1]].step for each in buckets]),
            turn=[self.gradients[each[-1]].turn for each in buckets],
            bytes=np.array([sum(self.gradients[i].bytes for i in each) for each in buckets], float),
            ready=self.ready[[each[-1] for each in buckets]],
            copy=self.copy[[each[0] for each in buckets]],
        )


def change_recorded(graph: Graph, gradients: Sequence[Gradient], change: RecordedSetup) -> Graph:
    """Return *graph*, one rank of a DDP job with these *gradients*, with *change*.

    Raises
    ------
    TransformError
        The recording has no all-reduces of gradients, or not the same number in each step.
    """
    recorded = require(all_reduces(graph), graph, "all-reduce")
    copies = bucket_copies(graph)
    matched = _match(graph, gradients, recorded, copies)
    before = matched.reduced(matched.recorded)
    after = before if change.limits is None else matched.reduced(_regroup(gradients, change.limits))
    cost, source = _costs(graph, before, after, recorded, change.placed)
    device = device_of(graph, int(after.ready[0]))
    count = len(graph.tasks)
    graph, stream = add_lane(graph, kind="stream", device=device)
    graph, transfers = send(
        graph,
        stream,
        after.ready,
        calls=call_of(graph)[after.ready],
        call=f"{PREFIX}issue all_reduce",
        name=TRANSFER,
        work_ns=cost,
        bytes=after.bytes,
        cost=source,
    )
    graph = late_edges(graph, after.ready, transfers, change.late_ns)
    graph = _wait(graph, transfers, after)
    if change.placed is not None:
        graph = _slow_under_transfers(graph, recorded, stream, change.placed.cluster)
    gone = np.zeros(len(graph.tasks), bool)
    gone[:count] = recorded | (copies & (not change.copies_back))
    if not change.broadcasts:
        gone[:count] |= _broadcasts(graph)[:count]
    graph = remove(graph, gone)
    if change.placed is None:
        return graph
    return graph.with_state(workers=change.placed)


def _match(graph: Graph, gradients: Sequence[Gradient], recorded: Mask, copies: Mask) -> _Gradients:
    """Match gradients with the recorded all-reduces: each is in the first that starts after it."""
    start = graph.tasks["start_ns"].to_numpy()
    steps = np.array([each.step for each in gradients])
    ready = np.array([each.row for each in gradients], np.int64)
    copy = np.full(len(gradients), -1, np.int64)
    copied = dict(per_step(graph, copies))
    buckets: list[list[int]] = []
    for step, mine in per_step(graph, recorded):
        here = np.flatnonzero(steps == step)
        if not len(here):
            raise TransformError(f"step {step} reduces gradients, but none is known to be finished")
        ends = ready_rows(graph, mine)
        bucket = np.minimum(np.searchsorted(start[ends], start[ready[here]]), len(ends) - 1)
        for number in np.unique(bucket).tolist():
            buckets.append(here[bucket == number].tolist())
            ready[buckets[-1][-1]] = ends[number]
        if len(copied.get(step, ())) == len(here):
            copy[here] = copied[step]
    return _Gradients(gradients, ready, copy, buckets)


def _regroup(gradients: Sequence[Gradient], limits: Caps) -> list[list[int]]:
    """Return the buckets that torch makes of the gradients of each step."""
    buckets: list[list[int]] = []
    for step in dict.fromkeys(each.step for each in gradients):
        here = [i for i, each in enumerate(gradients) if each.step == step]
        made = bucketed([gradients[i] for i in here], limits)
        buckets += [[here[i] for i in each] for each in made]
    return buckets


def _costs(
    graph: Graph, before: _Reduced, after: _Reduced, recorded: Mask, placed: Placement | None
) -> tuple[Rows, str | pd.Categorical]:
    """Return what each all-reduce takes, and where that comes from.

    On the recorded network it is read off the recorded ones of other sizes.
    """
    if placed is not None:
        how = _algorithm(graph, recorded)
        costs = {
            size: collective_cost(
                placed.cluster, placed.devices, "all_reduce", round(size), algorithm=how
            )
            for size in np.unique(after.bytes).tolist()
        }
        each = [costs[size] for size in after.bytes.tolist()]
        return np.array([c.ns for c in each], np.int64), pd.Categorical([c.source for c in each])
    rows = np.concatenate([mine for _, mine in per_step(graph, recorded)])
    work = graph.tasks["work_ns"].to_numpy()[rows]
    return np.rint(interpolate(before.bytes, work, after.bytes)).astype(np.int64), "table"


def _algorithm(graph: Graph, recorded: Mask) -> str:
    """Return the algorithm that the recorded all-reduces name, which the job is taken to keep."""
    named = matches(graph.tasks["name"], "(?i)_ring_")
    return "ring" if (named[recorded]).all() else "auto"


def interpolate(bytes_: Floats, ns: Floats, wanted: Floats) -> Floats:
    """Return the times of *wanted* bytes, from the median time *ns* of each size that was seen.

    Below the smallest and above the largest, time is in proportion to bytes.

    Examples
    --------
    >>> interpolate(np.array([10.0, 20.0]), np.array([6.0, 10.0]), np.array([5.0, 15.0, 40.0]))
    array([ 3.,  8., 20.])
    """
    sizes, which = np.unique(bytes_, return_inverse=True)
    times = np.array([np.median(ns[which == at]) for at in range(len(sizes))])
    inside = np.interp(wanted, sizes, times)
    outside = np.where(wanted < sizes[0], wanted / sizes[0], np.maximum(wanted / sizes[-1], 1.0))
    return inside * outside


def _wait(graph: Graph, transfers: Rows, after: _Reduced) -> Graph:
    """Let each bucket's first copy wait for it; where there is none, what follows backward."""
    bare = after.copy < 0
    graph = wait(graph, transfers, after.copy)
    on_stream = graph.tasks["lane"].to_numpy() == graph.tasks["lane"].to_numpy()[after.ready[0]]
    ends = backward_ends(graph, on_stream, after.ready, after.turn)
    return wait_behind(graph, transfers[bare], ends[bare])


def _slow_under_transfers(graph: Graph, recorded: Mask, stream: int, cluster: Cluster) -> Graph:
    """Let kernels be slowed by the transfers of *stream* instead of the *recorded* ones."""
    share = overlap_share(graph)
    start = graph.tasks["start_ns"].to_numpy()[: len(recorded)]
    end = start + graph.tasks["duration_ns"].to_numpy()[: len(recorded)]
    kernels = np.flatnonzero(is_in(graph.tasks["kind"], "kernel")[: len(recorded)] & (end > start))
    under = np.zeros(len(kernels))
    for row in np.flatnonzero(recorded).tolist():
        both = np.minimum(end[kernels], end[row]) - np.maximum(start[kernels], start[row])
        under += np.clip(both, 0, None)
    factor = np.ones(len(graph.tasks))
    factor[kernels] = 1 - (1 - share) * np.clip(under / (end - start)[kernels], 0.0, 1.0)
    alone = scale(graph, factor < 1.0, factor, cost="table")
    return slow_overlaps(alone, [stream], cluster)


def _broadcasts(graph: Graph) -> Mask:
    """Return the broadcasts that a recording of one rank shows."""
    return is_in(graph.tasks["kind"], "collective") & matches(graph.tasks["name"], "(?i)broadcast")
