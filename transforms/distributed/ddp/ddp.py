"""Data parallelism: the job on several workers, which add up their gradients."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from foretrace.errors import TransformError
from foretrace.transforms.cluster.placement import Placement, place_workers
from foretrace.transforms.collectives.cost import collective_cost
from foretrace.transforms.costs.assumed import Assumed
from foretrace.transforms.costs.devices import hardware
from foretrace.transforms.costs.kernel_names import classes
from foretrace.transforms.distributed.common.buckets import Caps, caps
from foretrace.transforms.distributed.common.gradient_sizes import MB, SOURCES
from foretrace.transforms.distributed.common.gradients import (
    Gradient,
    find_gradients,
    total_bytes,
)
from foretrace.transforms.distributed.common.slowest_of_n import late_ns
from foretrace.transforms.distributed.common.sparse_updates import grow_updates
from foretrace.transforms.distributed.common.transfers import communicates
from foretrace.transforms.distributed.common.workers import check_transport, with_workers
from foretrace.transforms.distributed.ddp.checks import check_sparse, check_wire, doubt_no_sync
from foretrace.transforms.distributed.ddp.gloo import exchange_on_host
from foretrace.transforms.distributed.ddp.nccl import exchange_on_device
from foretrace.transforms.distributed.ddp.plan import (
    ExchangePlan,
    buffers_of,
    describe_passes,
    plan_exchanges,
)
from foretrace.transforms.distributed.ddp.recorded import RecordedSetup, change_recorded
from foretrace.transforms.distributed.powersgd import powersgd
from foretrace.transforms.edit.columns import is_in
from foretrace.transforms.edit.parameters import reconcile, whole
from foretrace.transforms.edit.provenance import add_doubt, add_note, grow_samples
from foretrace.transforms.edit.select import has_device, within_operator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foretrace.graph.model import Graph
    from foretrace.transforms.cluster.model import Cluster

BESIDE = Assumed(
    "what workers of one machine lose to each other beside their links, in steps",
    *(0.0, 0.0, 0.25),
    "host memory, loader and PCIe are shared: published steps on all GPUs of a machine take 1.02 "
    "to 1.25 times those on one (NVIDIA's ResNet-50 examples, a NERSC tutorial)",
    ("T051", "T061"),
    more_is_longer=True,
)
EXACT = ("shapes", "model")


def ddp(
    graph: Graph,
    *,
    workers: int,
    cluster: str | Cluster | None = None,
    network: str | None = None,
    nodes: int | None = None,
    placement: list[int] | None = None,
    bucket_cap_mb: float | None = None,
    first_bucket_mb: float | None = None,
    gradient_as_bucket_view: bool = False,
    broadcast_buffers: bool = True,
    compression: str | None = None,
    backend: str | None = None,
    parameters: list[float] | None = None,
    gradient_mb: float | None = None,
    recorded_workers: int | None = None,
    no_sync: bool | None = None,
) -> Graph:
    """Train on *workers* devices that add up their gradients, as torch's DDP does.

    Parameters
    ----------
    graph
        The job of one worker, or one rank of a job that runs DDP already.
    workers
        How many workers; each trains on a batch of the recorded size.
    cluster
        What joins them: a preset ("dgx-a100"), a file, or in Python a `Cluster`.
    network
        Rate between machines, as in "25Gbps", or "300Mbps, burst 128KiB" of a shaped link; without
        *cluster*, of machines with one device each.
    nodes
        Machines that the workers fill evenly; by default as few as possible.
    placement
        Device of each worker, in the order of the ring.
    bucket_cap_mb, first_bucket_mb
        Caps of the buckets in MiB; by default 25 and 1, as torch has them.
    gradient_as_bucket_view
        Gradients live in their buckets and are not copied out of them.
    broadcast_buffers
        Rank 0 sends the buffers (of batch norms, say) before each forward pass.
    compression
        "fp16" or "bf16": gradients are cast to 16 bits on the wire. "powersgd": as what-if
        `powersgd`, with rank 1.
    backend
        "nccl" on devices, "gloo" on CPUs.
    parameters, gradient_mb
        Sizes of the parameters in MB in the model's order, or their sum, where the trace does not
        tell.
    recorded_workers
        Workers of the recording, where that runs DDP and does not count them.
    no_sync
        Whether backward passes that only add to the gradients of a later one, without an update in
        between, run under ``no_sync``; by default they do, and the interval spans both.

    Notes
    -----
    Assumes: all workers are copies of the recorded one and vary from step to step as it did,
    independently: the slowest of them delays each all-reduce. A bucket's all-reduce starts when its
    last gradient is copied in; gradients become ready in the recorded order. Every backward pass
    with an update behind it exchanges its gradients; parameters that take part in different passes
    are of different DDP models. Of a sparse gradient workers gather all rows, over gloo; the update
    then has the rows of all. Kernels and NCCL slow each other by what was seen on an A100; over
    gloo, computing and transfers do as on ranks with one core each.
    A trace that runs DDP already keeps what it shows; its all-reduces are regrouped, and cost as
    much longer as the new network is slower.
    Unknown: a loader that several workers share; skew by causes that one rank does not show.
    Source: torch's reducer; runs over shaped links, and the pairs P9 and P11 (docs/accuracy.md).

    Examples
    --------
    >>> from foretrace.graph.literal import literal
    >>> graph = literal(
    ...     [("mm", "host", 0, 9_000_000, "backward"), ("accumulate", "host", 0, 5, "backward"),
    ...      ("step", "host", 0, 50, "optimizer")],
    ...     columns={"operator": [-1, 0, -1]},
    ...     operators={"name": ["torch::autograd::AccumulateGrad"], "parent": [-1],
    ...                "shapes": ["[[1000,250]]"]},
    ... )
    >>> changed = ddp(graph, workers=2, network="1Gbps")
    >>> changed.tasks[changed.tasks.kind == "collective"][["name", "bytes"]].values.tolist()
    [['DDP all_reduce', 1000000.0]]
    """
    whole("workers", workers, 1)
    check_wire(graph, compression, backend)
    moved = cluster is not None or network is not None
    recorded = bool(communicates(graph).any())
    if not recorded and not has_device(graph) and within_operator(graph, "^c10d::").any():
        raise TransformError(
            "this is a rank of a gloo job, whose transfers the trace does not show; record the job "
            "on one worker"
        )
    if workers == 1 and not recorded:
        return graph
    placed = None
    if moved or not recorded:
        placed = place_workers(
            workers, cluster=cluster, network=network, nodes=nodes, placement=placement
        )
    counted = reconcile("recorded_workers", recorded_workers, graph.meta.world_size, "workers")
    graph = replace(graph, meta=replace(graph.meta, world_size=counted))
    setup = _Setup(
        caps(bucket_cap_mb, first_bucket_mb, graph.meta.framework),
        is_given=bucket_cap_mb is not None or first_bucket_mb is not None,
        copies_back=not gradient_as_bucket_view,
        broadcasts=broadcast_buffers,
        compressed=compression in ("fp16", "bf16"),
    )
    gradients = find_gradients(
        graph,
        parameters=parameters,
        gradient_mb=gradient_mb,
        no_sync=True if recorded and no_sync is None else no_sync,
    )
    check_sparse(graph, gradients, compression, recorded=recorded)
    if recorded and compression is not None:
        raise TransformError("ddp(compression=...) needs the recording of a job on one worker")
    if recorded:
        return _change(graph, gradients, workers, placed, setup)
    own = is_in(graph.tasks["kind"], "kernel") & (classes(graph.tasks["name"]) == "collective")
    if own.any():
        raise TransformError(
            "this job communicates in kernels of its own, which ddp does not know how to change"
        )
    assert placed is not None
    changed = _spread(graph, gradients, placed, setup)
    changed = add_doubt(changed, *doubt_no_sync(graph, no_sync))
    return powersgd(changed) if compression == "powersgd" else changed


class _Setup(NamedTuple):
    """How DDP is set up; ``is_given`` tells whether its user gave caps of buckets."""

    limits: Caps
    is_given: bool
    copies_back: bool
    broadcasts: bool
    compressed: bool


def _spread(graph: Graph, gradients: list[Gradient], placed: Placement, setup: _Setup) -> Graph:
    """Return a job of one worker as it runs on all of *placed*."""
    workers, cluster = len(placed.devices), placed.cluster
    check_transport(graph, cluster)
    buffers = buffers_of(graph) if setup.broadcasts else ()
    plan = ExchangePlan(
        placed,
        plan_exchanges(gradients, setup.limits, placed, compressed=setup.compressed),
        late_ns=late_ns(graph, workers) + _beside_ns(graph, placed),
        copies_back=setup.copies_back,
        compressed=setup.compressed,
        buffers=buffers,
        broadcast_ns=_broadcast_ns(placed, buffers),
    )
    on_device = has_device(graph)
    grown = grow_updates(graph, gradients, workers)
    changed = (exchange_on_device if on_device else exchange_on_host)(grown, plan)
    per_step = len(plan.exchanges) // len({each.step for each in plan.exchanges})
    where, first = cluster.name + _say_alone(placed), plan.exchanges[0].cost.note
    added = f"{total_bytes(gradients) / MB:.4g} MB{_say_sent(plan)}"
    notes = [
        f"ddp: {workers} workers on {where} add up {added}",
        *describe_passes(plan),
        f"ddp: all-reduces per step: {per_step}, the first as {first}",
        f"ddp: the slowest worker is {plan.late_ns / 1e6:.3g} ms behind at the end of a step",
    ]
    if gradients[0].source not in EXACT:
        known = SOURCES[gradients[0].source]
        notes.append(f"ddp: sizes of gradients are {known}; they become ready evenly")
    if on_device and (device := hardware(graph)) and "overlap_share" not in device.figures:
        notes.append("ddp: how much NCCL slows kernels down is known of the A100 only")
    return add_note(_of_workers(graph, changed, workers, placed), *notes)


def _beside_ns(graph: Graph, placed: Placement) -> int:
    """Return what a worker on a device loses in a step to others of its machine."""
    shares = len(placed.devices) > 1 and len(placed.cluster.devices) > 1
    return round(BESIDE.now() * graph.measured_step_ns) if shares and has_device(graph) else 0


def _say_alone(placed: Placement) -> str:
    """Say that each worker has a machine to itself, where that is so."""
    each = len(placed.cluster.devices)
    return " (one in each machine)" if each == 1 and len(placed.devices) > 1 else ""


def _say_sent(plan: ExchangePlan) -> str:
    """Say how much goes over the wire in a step, where gradients are cast to 16 bits for it."""
    first = plan.exchanges[0].step
    sent = sum(each.wire_bytes for each in plan.exchanges if each.step == first)
    return f", sent as {sent / MB:.4g} MB" if plan.compressed else ""


def _change(
    graph: Graph, gradients: list[Gradient], workers: int, placed: Placement | None, setup: _Setup
) -> Graph:
    """Return a job that runs DDP already with another set-up."""
    if graph.state.workers:
        raise TransformError("this job was given workers already; give them all in one ddp(...)")
    if (recorded := graph.lanes["rank"].nunique()) > 1:
        raise TransformError(
            f"this recording holds {recorded} ranks; ddp changes one for all: give the file of one"
        )
    before = graph.meta.world_size
    if placed is None and before is not None and before != workers:
        raise TransformError(
            f"the job was recorded on {before} ranks; say what joins {workers} workers: "
            'cluster=... or network="25Gbps"'
        )
    late = late_ns(graph, workers) - late_ns(graph, before or workers)
    change = RecordedSetup(
        placed,
        setup.limits if setup.is_given else None,
        copies_back=setup.copies_back,
        broadcasts=setup.broadcasts,
        late_ns=max(late, 0),
    )
    changed = change_recorded(graph, gradients, change)
    where = "their network" if placed is None else placed.cluster.name + _say_alone(placed)
    notes = [f"ddp: {workers} workers on {where}; the recorded all-reduces are grouped anew"]
    if before is None:
        notes.append(
            f"ddp: the recording does not count its workers, which are taken to be {workers}, too; "
            "recorded_workers=... says"
        )
    return add_note(_of_workers(graph, changed, workers, placed), *notes)


def _of_workers(before: Graph, graph: Graph, workers: int, placed: Placement | None) -> Graph:
    """Return *graph* as the job of so many workers, each with samples of its own."""
    is_recorded = bool(communicates(before).any())
    recorded = (graph.meta.world_size or workers) if is_recorded else 1
    graph = grow_samples(graph, workers / recorded)
    graph = replace(graph, meta=replace(graph.meta, world_size=workers))
    if placed is None:
        return graph
    device, other = hardware(graph), placed.cluster.device
    if device and other and device.name != other:
        note = f"ddp: kernels run as on the recorded {device.name}; of {placed.cluster.name}"
        graph = add_note(graph, f"{note}, which has {other}, only the links are taken")
    return with_workers(graph, placed)


def _broadcast_ns(placed: Placement, buffers: Sequence[int]) -> int:
    """Return how long rank 0 sends the buffers, all in one message."""
    if not buffers:
        return 0
    return collective_cost(placed.cluster, placed.devices, "broadcast", sum(buffers)).ns
