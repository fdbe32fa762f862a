"""Pipeline parallelism: the model cut into stages, the batch into micro-batches."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from foretrace.errors import TransformError
from foretrace.transforms.batch_size import batch_size
from foretrace.transforms.collective_tasks import with_workers
from foretrace.transforms.collectives import Cost
from foretrace.transforms.columns import is_in
from foretrace.transforms.ddp_host import host_shares
from foretrace.transforms.job_cluster import KEY, place_workers
from foretrace.transforms.parameters import choice, whole
from foretrace.transforms.pipeline_assembly import assemble
from foretrace.transforms.pipeline_cuts import FIRST, Cut, cut_model
from foretrace.transforms.pipeline_sizes import boundary_bytes, parameter_shares
from foretrace.transforms.pipeline_transfers import Sending, connect, reduce_gradients
from foretrace.transforms.primitives import scale
from foretrace.transforms.scenario import noted
from foretrace.transforms.schedules import SCHEDULES, turns
from foretrace.transforms.selection import has_device, on_device
from foretrace.transforms.simultaneous import cost_at_once
from foretrace.transforms.tensor_parallel import DEGREE, degree_of
from foretrace.transforms.transfers import communicates

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from foretrace.graph.model import Graph
    from foretrace.transforms.job_cluster import Placed
    from foretrace.transforms.pipeline_assembly import Assembled

MOST_TASKS = 20_000_000
"""More than this takes minutes and gigabytes to replay."""
BACKENDS = ("nccl", "gloo")


def pipeline(
    graph: Graph,
    *,
    stages: int,
    micro_batches: int,
    schedule: str = "gpipe",
    chunks: int = 1,
    replicas: int = 1,
    cluster: str | None = None,
    network: str | None = None,
    nodes: int | None = None,
    placement: list[int] | None = None,
    cuts: list[str] | None = None,
    activation_mb: float | None = None,
    recorded: int | None = None,
    blocking: bool | None = None,
    backend: str | None = None,
) -> Graph:
    """Split the model over *stages* devices and each batch into *micro_batches* parts.

    Parameters
    ----------
    graph
        The job of one worker, recorded with its modules.
    stages
        Ranks in the pipeline, each with a piece of the model.
    micro_batches
        Parts of the recorded batch; a step is the whole batch.
    schedule
        "gpipe", "1f1b" or "interleaved".
    chunks
        Pieces of the model per rank with the interleaved schedule.
    replicas
        Pipelines side by side, each with a batch of the recorded size; they add up their gradients
        after the last backward pass.
    cluster, network, nodes, placement
        What joins the ranks, as in `ddp`. Ranks are numbered tensor-parallel ones first, then
        replicas, then stages.
    cuts
        Modules at which the second and later pieces begin; by default layers, so that the longest
        piece is as short as can be.
    activation_mb
        Size in MB (10^6 bytes) of what one batch hands from piece to piece, where the recording
        has no shapes.
    recorded
        Samples in the recorded batch, where the trace does not say.
    blocking
        Over gloo, whether a host waits until what it sends forward is taken (``send``) or goes on
        (``isend``); by default it waits with "gpipe", since the other schedules would deadlock.
    backend
        "nccl" on devices, "gloo" on CPUs.

    Notes
    -----
    Assumes: layers run one after another, each on the output of the one before. Forward and
    backward of a micro-batch cost what `batch_size` says; host costs of a job with a device, and
    what runs once per step, stay. Each rank updates its share of the parameters; the first one
    loads. On devices a transfer starts when its data is there and the receiver has finished the
    computation before it of the same direction, and sends delay nothing. Over gloo a receive
    blocks; what is sent forward leaves when the receiver asks for it. Gradients of replicas are
    reduced at once, not behind the backward pass. Replicas and tensor-parallel ranks are alike,
    one of them is simulated.
    Unknown: tensors that skip a boundary, parameters shared by two stages, batch norms over
    micro-batches, and memory.
    Source: GPipe (NeurIPS'19), Megatron-LM (SC'21); the rules reproduce StragglerAnalysis' replays
    of a real 1F1B job; pipelines over shaped links.

    Examples
    --------
    >>> import pandas as pd
    >>> from foretrace.transforms.literal import literal
    >>> graph = literal(
    ...     [("mm", "host", 0, 50_000, "forward"), ("mm", "host", 0, 50_000, "forward"),
    ...      ("mm", "host", 0, 90_000, "backward"), ("mm", "host", 0, 90_000, "backward"),
    ...      ("step", "host", 0, 4_000, "optimizer")],
    ...     columns={"module": pd.Categorical(["0", "1", "1", "0", None])},
    ... )
    >>> changed = pipeline(graph, stages=2, micro_batches=1, network="10Gbps", activation_mb=1)
    >>> changed.lanes[["kind", "rank"]].values.tolist()
    [['thread', 0], ['thread', 1], ['link', 0], ['link', 1]]
    """
    for name, value in (("stages", stages), ("micro_batches", micro_batches), ("chunks", chunks),
                        ("replicas", replicas)):  # fmt: skip
        whole(name, value, 1)
    _check_job(graph, backend)
    shape = _Shape(stages, replicas, degree_of(graph), _chunks(schedule, chunks))
    order = [
        turns(schedule, stages=stages, micro_batches=micro_batches, stage=at, chunks=shape.chunks)
        for at in range(stages)
    ]
    if stages * replicas * micro_batches == 1:
        return graph
    where = {"cluster": cluster, "network": network, "nodes": nodes, "placement": placement}
    placed = _placed(graph, shape, where)
    cut = cut_model(graph, shape.pieces, cuts)
    split = _with_micro_batches(graph, cut, micro_batches, recorded)
    own, total = parameter_shares(graph, cut)
    shares = own.reshape(shape.chunks, stages).sum(axis=0)
    assembled = assemble(split, cut, order)
    assembled = replace(assembled, graph=_with_own_updates(assembled.graph, shares))
    waits = schedule == "gpipe" if blocking is None else blocking
    sizes = [size // micro_batches for size in boundary_bytes(graph, cut, activation_mb)]
    changed = connect(assembled, _sending(graph, placed, shape, sizes, blocking=waits))
    if replicas > 1:
        changed = _reduced(changed, assembled, placed, shape, shares * (total or 0))
    return noted(_of_workers(changed, placed), *_notes(cut, sizes, shape, micro_batches, total))


class _Shape(NamedTuple):
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


def _chunks(schedule: str, chunks: int) -> int:
    """Return the pieces per rank: at least two where they are interleaved, else one."""
    choice("schedule", schedule, SCHEDULES)
    if schedule == "interleaved":
        return max(chunks, 2)
    if chunks > 1:
        raise TransformError(f"chunks={chunks} needs schedule='interleaved', not {schedule!r}")
    return 1


def _check_job(graph: Graph, backend: str | None) -> None:
    """Raise unless *graph* is a job of one worker on what *backend* is for."""
    if communicates(graph).any() and DEGREE not in graph.extra:
        raise TransformError(
            "this job has several ranks already; give the recording of one worker, and the other "
            "degrees as pipeline(replicas=...) and tensor_parallel(degree=...)"
        )
    own = "nccl" if has_device(graph) else "gloo"
    if backend is not None and choice("backend", backend, BACKENDS) != own:
        raise TransformError(f"backend={backend!r}: this job would use {own}")


def _placed(graph: Graph, shape: _Shape, where: Mapping[str, Any]) -> Placed:
    """Return the devices of all ranks; the cluster of `tensor_parallel` unless another is given."""
    workers = shape.stages * shape.alike
    if workers == 1:
        return place_workers(1, network="1Gbps")
    known: Placed | None = graph.extra.get(KEY)
    if known is None or where["cluster"] is not None or where["network"] is not None:
        return place_workers(workers, **where)
    machines = -(-workers // len(known.cluster.devices))
    larger = replace(known.cluster, machines=max(machines, known.cluster.machines))
    return place_workers(workers, **{**where, "cluster": larger})


def _with_micro_batches(graph: Graph, cut: Cut, micro_batches: int, recorded: int | None) -> Graph:
    """Return *graph* whose passes cost what one micro-batch costs; the rest stays."""
    tasks = len(graph.tasks) * micro_batches
    if tasks > MOST_TASKS:
        raise TransformError(
            f"micro_batches={micro_batches} makes more than {MOST_TASKS:,} tasks; use fewer, or "
            "record fewer steps"
        )
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
    return graph


def _with_own_updates(graph: Graph, shares: npt.NDArray[np.float64]) -> Graph:
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


def _sending(
    graph: Graph, placed: Placed, shape: _Shape, sizes: Sequence[int], *, blocking: bool
) -> Sending:
    device = has_device(graph)
    costs = {
        direction: [
            _send_cost(placed, shape, (at, at + 1)[::onward], size) for at, size in enumerate(sizes)
        ]
        for direction, onward in (("forward", 1), ("backward", -1))
    }
    shares = (1.0, 1.0) if device else host_shares(placed.cluster)
    return Sending(sizes, costs, on_device=device, blocking=blocking, shares=shares)


def _send_cost(placed: Placed, shape: _Shape, pieces: tuple[int, ...], size: int) -> Cost:
    """Return the cost of one send from piece to piece while all alike ranks send."""
    if shape.stages == 1:
        return Cost(0, "roofline", 0.0)
    here, there = (piece % shape.stages * shape.alike for piece in pieces)
    pairs = [(placed.devices[here + at], placed.devices[there + at]) for at in range(shape.alike)]
    return cost_at_once(placed.cluster, _beside(placed, pairs), "send", size)


def _beside(placed: Placed, groups: Sequence[Sequence[int]]) -> list[Sequence[int]]:
    """Return the groups with a device in a machine of the first one's: those may share links."""
    machines = {placed.cluster.place(device)[0] for device in groups[0]}
    return [
        group
        for group in groups
        if machines & {placed.cluster.place(device)[0] for device in group}
    ]


def _reduced(
    graph: Graph,
    assembled: Assembled,
    placed: Placed,
    shape: _Shape,
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
        graph, assembled, costs, sizes / shape.degree, on_device=has_device(graph)
    )


def _of_workers(graph: Graph, placed: Placed) -> Graph:
    count = len(placed.devices)
    graph = replace(graph, meta=replace(graph.meta, world_size=count))
    return with_workers(graph, placed) if count > 1 else graph


def _notes(
    cut: Cut, sizes: Sequence[int], shape: _Shape, micro_batches: int, total: int | None
) -> list[str]:
    handed = ", ".join(f"{size / 1e6:.3g}" for size in sizes) or "0"
    notes = [
        f"pipeline: {shape.stages} stages, whose pieces begin at {', '.join(cut.begins)}",
        f"pipeline: {micro_batches} micro-batches per step, which hand on {handed} MB",
    ]
    if total is None:
        notes.append(
            "pipeline: parameters are split as the backward pass's time, sizes are unknown"
        )
    if shape.alike > 1:
        notes.append(f"pipeline: each rank stands for {shape.alike} that are alike")
    return notes
