"""What the ranks of a pipeline cost: micro-batches, their own updates, what they send and add up.

In: the graph of one rank, its cut, and where the ranks are. Out: graphs and costs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foretrace.errors import TransformError
from foretrace.transforms.batching.batch_size import batch_size
from foretrace.transforms.collectives.cost import Cost, cost_at_once
from foretrace.transforms.distributed.common.blocking_host import WAKE_RECEIVER, wake_ns
from foretrace.transforms.distributed.common.link_credit import credit_ns
from foretrace.transforms.distributed.common.overlap import host_shares
from foretrace.transforms.distributed.pipeline.partition import FIRST
from foretrace.transforms.distributed.pipeline.transfers import Sending, reduce_gradients
from foretrace.transforms.distributed.tensor_parallel.tensor_parallel import NAME as SUM
from foretrace.transforms.distributed.tensor_parallel.tensor_parallel import sum_costs
from foretrace.transforms.edit.columns import is_in
from foretrace.transforms.edit.parameters import whole
from foretrace.transforms.edit.primitives import scale
from foretrace.transforms.edit.provenance import add_doubt, add_warning
from foretrace.transforms.edit.select import has_device, on_device

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from foretrace.graph.model import Graph
    from foretrace.transforms.cluster.placement import Placement
    from foretrace.transforms.distributed.pipeline.assembly import AssembledRanks
    from foretrace.transforms.distributed.pipeline.partition import Cut


class PipelineShape(NamedTuple):
    """How many of each; device number = (stage x replicas + replica) x degree + part of a layer."""

    stages: int
    replicas: int
    degree: int
    chunks: int

    @property
    def pieces(self) -> int:
        """Pieces of the model."""
        return self.stages * self.chunks

    @property
    def alike(self) -> int:
        """Devices that do what one of them does."""
        return self.replicas * self.degree


def with_micro_batches(graph: Graph, cut: Cut, micro_batches: int, recorded: int | None) -> Graph:
    """Return *graph* whose passes cost what one micro-batch costs; the rest stays."""
    if micro_batches == 1:
        return graph
    batch = graph.meta.batch_size if recorded is None else whole("recorded", recorded, 1)
    if batch is None:
        raise TransformError(
            "the trace does not say its batch size; give recorded=..., the samples per step in it"
        )
    if batch % micro_batches:
        raise TransformError(
            f"micro_batches={micro_batches} does not divide the {batch} samples of a step"
        )
    smaller = batch_size(graph, n=batch // micro_batches, recorded=batch)
    passes = cut.part >= FIRST
    work = np.where(passes, smaller.tasks["work_ns"], graph.tasks["work_ns"])
    factor = work / np.maximum(graph.tasks["work_ns"].to_numpy(), 1)
    measured = is_in(smaller.tasks["cost"], "measured")
    for where, cost in ((passes & measured, "measured"), (passes & ~measured, "roofline")):
        graph = scale(graph, where, factor, cost=cost)
    return add_doubt(add_warning(graph, *smaller.state.warnings), *smaller.state.doubts)


def with_smaller_sums(
    graph: Graph, placed: Placement, shape: PipelineShape, micro_batches: int
) -> Graph:
    """Let the sums of `tensor_parallel` cost what those of one micro-batch cost on *placed*."""
    rows = np.flatnonzero(is_in(graph.tasks["name"], SUM))
    if not len(rows):
        return graph
    sizes = graph.tasks["bytes"].to_numpy()[rows] / micro_batches
    starts = range(0, len(placed.devices), shape.degree)
    groups = [placed.devices[start : start + shape.degree] for start in starts]
    costs = sum_costs(placed.cluster, _beside(placed, groups), sizes.tolist())
    work, size = (graph.tasks[c].to_numpy().copy() for c in ("work_ns", "bytes"))
    work[rows], size[rows] = [costs[one].ns for one in sizes.tolist()], sizes
    return replace(graph, tasks=graph.tasks.assign(work_ns=work, bytes=size))


def with_own_updates(graph: Graph, shares: npt.NDArray[np.float64]) -> Graph:
    """Let each rank update its share of the parameters.

    On a device only the kernels of a fused or multi-tensor update shrink: its calls do not. A loop
    over tensors has as many fewer calls.
    """
    tasks = graph.tasks
    update = is_in(tasks["phase"], "optimizer")
    is_loop = (graph.meta.optimizer or {}).get("kind") in (None, "loop")
    where = update & (on_device(graph) | is_loop | (not has_device(graph)))
    share = shares[graph.lanes["rank"].to_numpy()[tasks["lane"].to_numpy()]]
    graph = scale(graph, where, share, cost="roofline")
    if not is_loop:
        return graph
    dst = graph.edges["dst"].to_numpy()
    between = update[dst] & is_in(graph.edges["kind"], "thread")
    lag = graph.edges["lag_ns"].to_numpy()
    lag = np.where(between, np.rint(lag * share[dst]), lag).astype(lag.dtype)
    return replace(graph, edges=graph.edges.assign(lag_ns=lag))


def plan_sending(
    graph: Graph, placed: Placement, shape: PipelineShape, sizes: Sequence[int], *, blocking: bool
) -> Sending:
    """Return how the pieces hand on *sizes*, the bytes of a micro-batch at each boundary."""
    device = has_device(graph)
    costs = {
        direction: [
            _send_cost(placed, shape, (at, at + 1)[::onward], size) for at, size in enumerate(sizes)
        ]
        for direction, onward in (("forward", 1), ("backward", -1))
    }
    return Sending(
        sizes,
        costs,
        on_device=device,
        blocking=blocking,
        shares=(1.0, 1.0) if device else host_shares(placed.cluster),
        credit_ns=0.0 if device else credit_ns(placed.cluster),
        wake_ns=0 if device else wake_ns(placed.cluster, WAKE_RECEIVER),
    )


def _send_cost(placed: Placement, shape: PipelineShape, pieces: tuple[int, ...], size: int) -> Cost:
    """Return the cost of one send from piece to piece while all alike ranks send."""
    if shape.stages == 1:
        return Cost(0, "roofline", 0.0)
    here, there = (piece % shape.stages * shape.alike for piece in pieces)
    pairs = [(placed.devices[here + at], placed.devices[there + at]) for at in range(shape.alike)]
    return cost_at_once(placed.cluster, _beside(placed, pairs), "send", size)


def _beside(placed: Placement, groups: Sequence[Sequence[int]]) -> list[Sequence[int]]:
    """Return the groups with a device in a machine of the first one's: those may share links."""
    machines = {placed.cluster.place(device)[0] for device in groups[0]}
    return [
        group
        for group in groups
        if machines & {placed.cluster.place(device)[0] for device in group}
    ]


def reduce(
    graph: Graph,
    assembled: AssembledRanks,
    placed: Placement,
    shape: PipelineShape,
    sizes: npt.NDArray[np.float64],
) -> Graph:
    """Return *graph* whose replicas add up their gradients at the end of a step."""
    if not sizes.any():
        raise TransformError(
            "this trace does not tell how large the gradients are that replicas add up; record it "
            "with foretrace record"
        )
    costs = []
    for stage, size in enumerate(sizes.tolist()):
        first = stage * shape.alike
        groups = [
            [placed.devices[first + at + r * shape.degree] for r in range(shape.replicas)]
            for at in range(shape.degree)
        ]
        costs.append(cost_at_once(placed.cluster, groups, "all_reduce", size / shape.degree))
    return reduce_gradients(
        graph, assembled, costs, (sizes / shape.degree).tolist(), on_device=has_device(graph)
    )
