"""P3: gradients cut into slices, and the layers that the next forward pass needs first go first."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from foretrace.errors import TransformError
from foretrace.transforms.cluster.placement import Placement
from foretrace.transforms.distributed.common.assumed_layers import with_layers
from foretrace.transforms.distributed.common.dense_gradients import find_once
from foretrace.transforms.distributed.common.gradients import total_bytes
from foretrace.transforms.distributed.common.overlap import slow_overlaps
from foretrace.transforms.distributed.common.server_cost import (
    ServerPlacement,
    update_ns,
    update_tasks,
)
from foretrace.transforms.distributed.common.slowest_of_n import late_ns
from foretrace.transforms.distributed.common.transfers import add_lane, issue, put, wait
from foretrace.transforms.distributed.common.workers import of_workers, place_alone
from foretrace.transforms.distributed.common.wrapping_units import EVERY_MODULE, find_units
from foretrace.transforms.distributed.p3.priority_lanes import PULL, PUSH, SliceExchange, serve
from foretrace.transforms.edit.parameters import positive, whole
from foretrace.transforms.edit.primitives import edge_rows
from foretrace.transforms.edit.provenance import add_note
from foretrace.transforms.edit.remove import remove
from foretrace.transforms.edit.select import has_device, launch_edges

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foretrace.graph.model import Graph
    from foretrace.transforms.distributed.common.gradients import Gradient
    from foretrace.transforms.edit.columns import Rows

MB = 1_000_000
PREFIX = "P3 "
"""Names of the tasks that it adds begin so."""
SLICE_MB = 0.2
"""50,000 parameters of 4 bytes, as P3 takes them (MLSys 2019)."""
MOST_SLICES = 200_000
"""Of all recorded steps; more would take longer than ten seconds to put in order."""


def p3(
    graph: Graph,
    *,
    workers: int,
    servers: int | None = None,
    slice_mb: float = SLICE_MB,
    cluster: str | None = None,
    network: str | None = None,
    nodes: int | None = None,
    ingress: bool = True,
    server_gbps: float | None = None,
    layers: int | None = None,
    gradient_mb: float | None = None,
) -> Graph:
    """Exchange gradients in slices over parameter servers, those of the first layers first.

    Parameters
    ----------
    graph
        The job of one process.
    workers, cluster, network, nodes, ingress, server_gbps
        As `parameter_server` takes them.
    servers
        Devices that serve and do not compute; by default every worker's machine serves a share.
    slice_mb
        Size of a slice in MB.
    layers
        How many layers the model has, where the trace names no modules.
    gradient_mb
        Size of all gradients in MB (10^6 bytes), where the trace does not tell.

    Notes
    -----
    Assumes: a slice is pushed when its gradient is final, updated, and pulled; of the slices that
    are ready, a link carries one of the earliest layer first, and finishes what it has begun. A
    layer of the next forward pass waits for its own slices only. The order on the links is decided
    from the work that comes before each gradient, and does not change while replaying. Workers do
    not update.
    Unknown: what a slice costs beside its bytes; the servers' CPUs where they are busy.
    Source: P3 (MLSys 2019), as Daydream (ATC 2020) models it.

    Examples
    --------
    >>> from foretrace.graph.literal import literal
    >>> graph = literal(
    ...     [("mm", "host", 0, 50, "forward"), ("accumulate", "host", 0, 5, "backward")],
    ...     columns={"module": ["fc", "fc"], "operator": [-1, 0]},
    ...     operators={"name": ["torch::autograd::AccumulateGrad"], "parent": [-1],
    ...                "shapes": ["[[250,300]]"]},
    ...     wrap=True,
    ... )
    >>> new = p3(graph, workers=2, network="1Gbps")
    >>> new.tasks.name[new.tasks.kind == "collective"].tolist()
    ['P3 push', 'P3 push', 'P3 pull', 'P3 pull']
    """
    positive("slice_mb", slice_mb)
    if server_gbps is not None:
        positive("server_gbps", server_gbps)
    extra = 0 if servers is None else whole("servers", servers, 1)
    placed = place_alone(
        graph, "p3", workers, cluster=cluster, network=network, nodes=nodes, servers=extra
    )
    devices = placed.devices[:workers]
    job = ServerPlacement(
        placed, devices, devices if servers is None else placed.devices[workers:], ingress
    )
    graph = with_layers(graph, layers, "p3")
    gradients = find_once(graph, "p3", gradient_mb=gradient_mb)
    slices = _slices(graph, gradients, slice_mb * MB)
    late = late_ns(graph, workers)
    update = update_tasks(graph)
    changed = _exchange(graph, gradients, slices, job, late, server_gbps)
    padding = np.zeros(len(changed.tasks) - len(update), bool)
    changed = remove(changed, np.append(update, padding), gaps="drop")
    return add_note(
        of_workers(changed, workers, Placement(placed.cluster, devices)),
        f"p3: {workers} workers exchange {total_bytes(gradients) / MB:.3g} MB in slices of "
        f"{slice_mb:g} MB over {placed.cluster.name}, the first layers first",
        *([f"p3: the slowest worker is {late / 1e6:.3g} ms late"] if late else []),
    )


class _Slice(NamedTuple):
    """A piece of a gradient: which one, its bytes, and the layer that needs it again."""

    gradient: int
    bytes: float
    urgency: int
    needed: int
    shift: int


def _slices(graph: Graph, gradients: Sequence[Gradient], size: float) -> list[_Slice]:
    """Cut every gradient; its layer needs it in the next step, maybe of the next repetition."""
    layers = find_units(graph, gradients, EVERY_MODULE)
    steps = list(dict.fromkeys(layer.step for layer in layers))
    following = dict(zip(steps, [*steps[1:], steps[0]], strict=True))
    needs = {(layer.step, layer.name): layer.needs_forward for layer in layers}
    made: list[_Slice] = []
    if sum(each.bytes for each in gradients) > MOST_SLICES * size:
        raise TransformError(f"slice_mb={size / MB:g} is too small: over {MOST_SLICES:,} slices")
    for urgency, layer in enumerate(layers):
        later = following[layer.step]
        needed = needs.get((later, layer.name), -1)
        for index in layer.members:
            whole_slices, rest = divmod(gradients[index].bytes, size)
            pieces = [size] * int(whole_slices) + [rest] * (rest > 0)
            shift = int(later <= layer.step)
            made += [_Slice(index, piece, urgency, needed, shift) for piece in pieces]
    return made


def _exchange(
    graph: Graph,
    gradients: Sequence[Gradient],
    slices: Sequence[_Slice],
    job: ServerPlacement,
    late: int,
    server_gbps: float | None,
) -> Graph:
    """Put the pushes and pulls of all slices into *graph*, in the order of their urgency."""
    push, pull = job.push_ns_per_byte(together=True), job.pull_ns_per_byte(together=True)
    exchanges = [
        SliceExchange(
            ready_ns=float(ready),
            urgency=each.urgency,
            push_ns=each.bytes * push,
            pull_ns=each.bytes * pull,
            between_ns=job.start_ns
            + late
            + update_ns(graph, each.bytes, len(job.workers), server_gbps),
        )
        for each, ready in zip(slices, _ready(graph, gradients, slices), strict=True)
    ]
    step = np.array([gradients[each.gradient].step for each in slices])
    order = [
        (int(mine[at]), leg)
        for mine in (np.flatnonzero(step == one) for one in np.unique(step))
        for at, leg in serve([exchanges[i] for i in mine], apart=job.apart)
    ]
    graph, pushes, pulls = _on_lanes(graph, gradients, slices, exchanges, order, apart=job.apart)
    lanes = np.unique(graph.tasks["lane"].to_numpy()[np.append(pushes, pulls)])
    graph = slow_overlaps(graph, lanes.tolist(), job.placed.cluster)
    between = np.rint([each.between_ns for each in exchanges]).astype(np.int64)
    graph = replace(graph, edges=edge_rows(graph.edges, pushes, pulls, "event", between))
    graph = _issue(graph, gradients, slices, pushes)
    needed, shift = (
        np.array([getattr(each, name) for each in slices]) for name in ("needed", "shift")
    )
    return wait(graph, pulls, needed, shift=shift)


def _ready(graph: Graph, gradients: Sequence[Gradient], slices: Sequence[_Slice]) -> Rows:
    """Return when the gradient of each slice is final, by the work before it on its lane."""
    lane, start, work = (graph.tasks[c].to_numpy() for c in ("lane", "start_ns", "work_ns"))
    order = np.lexsort((np.arange(len(lane)), start, lane))
    done = np.empty(len(lane), np.int64)
    done[order] = np.cumsum(work[order])
    return done[[gradients[each.gradient].row for each in slices]]


def _on_lanes(
    graph: Graph,
    gradients: Sequence[Gradient],
    slices: Sequence[_Slice],
    exchanges: Sequence[SliceExchange],
    order: Sequence[tuple[int, int]],
    *,
    apart: bool,
) -> tuple[Graph, Rows, Rows]:
    """Put pushes and pulls on a lane each, or on one, in *order*; also return their rows."""
    rows = np.full((2, len(slices)), -1, np.int64)
    for legs in ((PUSH,), (PULL,)) if apart else ((PUSH, PULL),):
        mine = [(at, leg) for at, leg in order if leg in legs]
        graph, lane = add_lane(graph)
        graph, new = put(
            graph,
            lane,
            np.array([gradients[slices[at].gradient].row for at, _ in mine]),
            name=pd.Categorical([PREFIX + ("push", "pull")[leg] for _, leg in mine]),
            work_ns=np.rint([exchanges[at][2 + leg] for at, leg in mine]).astype(np.int64),
            bytes=np.array([slices[at].bytes for at, _ in mine]),
            cost="roofline",
        )
        for row, (at, leg) in zip(new.tolist(), mine, strict=True):
            rows[leg, at] = row
    return graph, rows[PUSH], rows[PULL]


def _issue(
    graph: Graph, gradients: Sequence[Gradient], slices: Sequence[_Slice], pushes: Rows
) -> Graph:
    """Let one call start all slices of a gradient once that is final."""
    of = np.array([each.gradient for each in slices])
    _, first = np.unique(of, return_index=True)
    host, ready = (np.array([getattr(gradients[at], end) for at in of]) for end in ("host", "row"))
    if has_device(graph):
        graph = wait(graph, ready, pushes)
    graph = issue(graph, pushes[first], host[first])
    launch = launch_edges(graph)[pushes[first]]
    rest = np.setdiff1d(np.arange(len(of)), first)
    edge = launch[np.searchsorted(of[first], of[rest])]
    launched = edge >= 0
    src, lag = (graph.edges[c].to_numpy()[edge[launched]] for c in ("src", "lag_ns"))
    return replace(graph, edges=edge_rows(graph.edges, src, pushes[rest[launched]], "launch", lag))
