"""Pipeline parallelism: the model cut into stages, the batch into micro-batches."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from foretrace.errors import TransformError
from foretrace.transforms.cluster.placement import place_workers, workers_placed
from foretrace.transforms.distributed.common.assumed_layers import with_layers
from foretrace.transforms.distributed.common.transfers import communicates
from foretrace.transforms.distributed.common.workers import check_transport, with_workers
from foretrace.transforms.distributed.pipeline.assembly import assemble
from foretrace.transforms.distributed.pipeline.costs import (
    PipelineShape,
    plan_sending,
    reduce,
    with_micro_batches,
    with_own_updates,
    with_smaller_sums,
)
from foretrace.transforms.distributed.pipeline.partition import Cut, cut_model
from foretrace.transforms.distributed.pipeline.schedules import SCHEDULES, turns
from foretrace.transforms.distributed.pipeline.stage_sizes import boundary_bytes, parameter_shares
from foretrace.transforms.distributed.pipeline.transfers import connect
from foretrace.transforms.distributed.tensor_parallel.tensor_parallel import degree_of
from foretrace.transforms.edit.parameters import choice, whole
from foretrace.transforms.edit.provenance import add_note, grow_samples
from foretrace.transforms.edit.select import has_device

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from foretrace.graph.model import Graph
    from foretrace.transforms.cluster.placement import Placement

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
    layers: int | None = None,
) -> Graph:
    """Split the model over *stages* devices and each batch into *micro_batches* parts.

    Parameters
    ----------
    graph
        The job of one worker.
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
    layers
        How many layers the model has, where the trace names no modules.

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
    >>> from foretrace.graph.literal import literal
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
    _check_job(graph, micro_batches, backend)
    waits = schedule == "gpipe" if blocking is None else blocking
    if waits and schedule != "gpipe" and stages > 1 and micro_batches > 1 and not has_device(graph):
        raise TransformError(
            f"blocking sends deadlock with schedule={schedule!r}: a stage sends the next "
            "micro-batch on while the one behind sends a gradient back; use blocking=False"
        )
    shape = PipelineShape(stages, replicas, degree_of(graph), _chunks(schedule, chunks))
    if stages * replicas * micro_batches == 1:
        return graph
    graph = with_layers(graph, layers, "pipeline")
    where = {"cluster": cluster, "network": network, "nodes": nodes, "placement": placement}
    placed = _place(graph, shape, where)
    check_transport(graph, placed.cluster)
    cut = cut_model(graph, shape.pieces, cuts)
    order = [
        turns(schedule, stages=stages, micro_batches=micro_batches, stage=at, chunks=shape.chunks)
        for at in range(stages)
    ]
    split = with_micro_batches(graph, cut, micro_batches, recorded)
    split = with_smaller_sums(split, placed, shape, micro_batches)
    own, total = parameter_shares(graph, cut)
    shares = own.reshape(shape.chunks, stages).sum(axis=0)
    assembled = assemble(split, cut, order)
    assembled = replace(assembled, graph=with_own_updates(assembled.graph, shares))
    sizes = [size // micro_batches for size in boundary_bytes(graph, cut, activation_mb)]
    changed = connect(assembled, plan_sending(graph, placed, shape, sizes, blocking=waits))
    if replicas > 1:
        changed = reduce(changed, assembled, placed, shape, shares * (total or 0))
    changed = grow_samples(changed, replicas)
    return add_note(_of_workers(changed, placed), *_notes(cut, sizes, shape, micro_batches, total))


def _chunks(schedule: str, chunks: int) -> int:
    """Return the pieces per rank: at least two where they are interleaved, else one."""
    choice("schedule", schedule, SCHEDULES)
    if schedule == "interleaved":
        return max(chunks, 2)
    if chunks > 1:
        raise TransformError(f"chunks={chunks} needs schedule='interleaved', not {schedule!r}")
    return 1


def _check_job(graph: Graph, micro_batches: int, backend: str | None) -> None:
    """Raise unless *graph* is a job of one worker on what *backend* is for, and not too large."""
    if len(graph.tasks) * micro_batches > MOST_TASKS:
        raise TransformError(
            f"micro_batches={micro_batches} makes more than {MOST_TASKS:,} tasks; use fewer, or "
            "record fewer steps"
        )
    if communicates(graph).any() and graph.state.tensor_parallel is None:
        raise TransformError(
            "this job has several ranks already; give the recording of one worker, and the other "
            "degrees as pipeline(replicas=...) and tensor_parallel(degree=...)"
        )
    own = "nccl" if has_device(graph) else "gloo"
    if backend is not None and choice("backend", backend, BACKENDS) != own:
        raise TransformError(f"backend={backend!r}: this job would use {own}")


def _place(graph: Graph, shape: PipelineShape, where: Mapping[str, Any]) -> Placement:
    """Return the devices of all ranks; the cluster of `tensor_parallel` unless another is given."""
    workers = shape.stages * shape.alike
    if workers == 1:
        return place_workers(1, network="1Gbps")
    before = workers_placed(graph)
    if before is None or where["cluster"] is not None or where["network"] is not None:
        return place_workers(workers, **where)
    machines = -(-workers // len(before.cluster.devices))
    larger = replace(before.cluster, machines=max(machines, before.cluster.machines))
    return place_workers(workers, **{**where, "cluster": larger})


def _of_workers(graph: Graph, placed: Placement) -> Graph:
    count = len(placed.devices)
    graph = replace(graph, meta=replace(graph.meta, world_size=count))
    return with_workers(graph, placed) if count > 1 else graph


def _notes(
    cut: Cut, sizes: Sequence[int], shape: PipelineShape, micro_batches: int, total: int | None
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
