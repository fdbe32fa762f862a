"""Parameter servers: workers push gradients and pull parameters, in step or at their own pace."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foretrace.transforms.cluster.placement import Placement
from foretrace.transforms.costs.memcpy_cost import insert_moves, moving_ns
from foretrace.transforms.distributed.common.dense_gradients import find_once
from foretrace.transforms.distributed.common.gradients import Gradient, total_bytes
from foretrace.transforms.distributed.common.server_cost import (
    ServerPlacement,
    update_ns,
    update_tasks,
)
from foretrace.transforms.distributed.common.slowest_of_n import late_ns
from foretrace.transforms.distributed.common.transfers import (
    add_lane,
    after,
    block,
    issue,
    put,
    wait,
)
from foretrace.transforms.distributed.common.workers import of_workers, place_alone
from foretrace.transforms.edit.columns import Rows, is_in
from foretrace.transforms.edit.parameters import choice, positive, whole
from foretrace.transforms.edit.primitives import CHAINS, edge_rows
from foretrace.transforms.edit.provenance import add_note
from foretrace.transforms.edit.remove import remove
from foretrace.transforms.edit.select import has_device

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foretrace.graph.model import Graph

MODES = ("bsp", "asp")
PREFIX = "PS "
"""Names of the tasks that it adds begin so."""
UPDATE = "update"
STAGES = ("push", UPDATE, "pull")
COPY_IN, COPY_OUT = f"{PREFIX}copy in", f"{PREFIX}copy out"
COPY_PASSES = 2
"""Gradients are copied into one tensor, and parameters out of it."""


class _Stage(NamedTuple):
    """One leg of a step's exchange, in ns; and how long it is if nobody else comes, or all do."""

    name: str
    ns: int
    apart_ns: int = 0
    at_once_ns: int = 0


def parameter_server(
    graph: Graph,
    *,
    workers: int,
    servers: int = 1,
    mode: str = "bsp",
    cluster: str | None = None,
    network: str | None = None,
    nodes: int | None = None,
    ingress: bool = True,
    server_gbps: float | None = None,
    parameters: list[float] | None = None,
    gradient_mb: float | None = None,
) -> Graph:
    """Train on *workers* processes that send gradients to parameter servers and fetch parameters.

    Parameters
    ----------
    graph
        The job of one process.
    workers, servers
        How many compute, and how many more devices hold an equal share of the parameters each.
    mode
        "bsp": a server waits for the gradients of all workers. "asp": every worker goes on with
        what the servers have.
    cluster, network, nodes, parameters, gradient_mb
        As `ddp` takes them; the cluster holds workers and servers.
    ingress
        False where only what a machine sends is limited, as ``tc tbf`` does it.
    server_gbps
        Rate at which a server reads and writes memory while it updates; by default that of one core
        of the recorded machine, 10 GB/s where that was not probed.

    Notes
    -----
    Assumes: after backward a worker pushes all gradients as one tensor to all servers at once,
    which update and send parameters back; the worker does not update. In step, all workers push
    and pull at the same time, and share the servers' links. Otherwise they meet there by chance
    and share evenly what is busy: a step is what it takes on average. Over links that share
    evenly, workers of one speed keep the distance at which they began, so that a short run may
    take anything from taking turns to coming all at once; the note says how far that is. The step
    is that of one worker in either mode.
    Unknown: workers of different speed in mode "asp"; copies between device and host memory; what
    stale gradients cost in convergence.
    Source: Cynthia (ICPP 2019) and mean value analysis; the project's runs over shaped links.

    Examples
    --------
    >>> from foretrace.graph.literal import literal
    >>> graph = literal([("mm", "host", 0, 900, "backward"), ("step", "host", 0, 50, "optimizer")])
    >>> new = parameter_server(graph, workers=2, network="1Gbps", gradient_mb=1.0)
    >>> new.tasks[["name", "work_ns"]][new.tasks.kind == "collective"].values.tolist()
    [['PS push', 16794282], ['PS pull', 16794282]]
    """
    choice("mode", mode, MODES)
    whole("workers", workers, 1)
    whole("servers", servers, 1)
    placed = place_alone(
        graph,
        "parameter_server",
        workers,
        cluster=cluster,
        network=network,
        nodes=nodes,
        servers=servers,
    )
    gradients = find_once(graph, "parameter_server", parameters=parameters, gradient_mb=gradient_mb)
    job = ServerPlacement(placed, placed.devices[:workers], placed.devices[workers:], ingress)
    size = float(total_bytes(gradients))
    waits = mode == "bsp"
    late = late_ns(graph, workers) if waits else 0
    if server_gbps is not None:
        positive("server_gbps", server_gbps)
    stages = (_in_step if waits else _one_by_one)(graph, job, size, server_gbps)
    update = update_tasks(graph)
    changed = _exchange(graph, gradients, stages, size, late)
    padding = np.zeros(len(changed.tasks) - len(update), bool)
    changed = remove(changed, np.append(update, padding), gaps="drop")
    return add_note(
        of_workers(changed, workers, Placement(placed.cluster, job.workers) if waits else None),
        f"parameter_server: {workers} workers push and pull {size / 1e6:.3g} MB, {servers} "
        f"servers, {placed.cluster.name}, {mode}",
        *([f"parameter_server: the slowest worker is {late / 1e6:.3g} ms late"] if late else []),
        *([] if waits else [_range(stages)]),
    )


def _in_step(
    graph: Graph, job: ServerPlacement, size: float, server_gbps: float | None
) -> tuple[_Stage, ...]:
    """Return the legs of an exchange that all workers make at the same time."""
    push, pull = (
        job.start_ns + round(size * leg(together=True))
        for leg in (job.push_ns_per_byte, job.pull_ns_per_byte)
    )
    update = update_ns(graph, size / len(job.servers), len(job.workers), server_gbps)
    return _Stage("push", push), _Stage(UPDATE, update), _Stage("pull", pull)


def _one_by_one(
    graph: Graph, job: ServerPlacement, size: float, server_gbps: float | None
) -> tuple[_Stage, ...]:
    """Return the legs of an exchange of one worker, which meets those of others by chance."""
    workers = len(job.workers)
    update = update_ns(graph, size / len(job.servers), 1, server_gbps)
    own, shared = [], []
    for leg in (job.push_ns_per_byte, job.pull_ns_per_byte):
        alone, together = (size * leg(together=each) for each in (False, True))
        share = together / workers if together > alone else 0.0
        shared.append(share)
        own.append(job.start_ns + alone - share)
    computing = _computing_ns(graph) + 2 * float(
        moving_ns(graph, np.array([COPY_PASSES * size]))[0]
    )
    rest, demands = [own[0], 0.0, own[1]], [shared[0], float(update), shared[1]]
    times = fair_share_times(computing + sum(own), demands, workers)
    return tuple(
        _Stage(name, *(round(fixed + busy) for busy in (time, demand, workers * demand)))
        for name, fixed, time, demand in zip(STAGES, rest, times, demands, strict=True)
    )


def fair_share_times(alone: float, shared: Sequence[float], workers: int) -> list[float]:
    """Return how long one of *workers* spends at each shared link, which it uses in every step.

    Without anybody else a step takes *alone*, and the links *shared* times of their own. Workers do
    not wait for each other, meet at the links at random, and share them evenly: mean value analysis
    of a closed network, exact for links that serve all at once whatever their times look like
    (Baskett, Chandy, Muntz and Palacios, 1975).

    Examples
    --------
    >>> fair_share_times(10, [10], workers=1), fair_share_times(10, [10], workers=2)
    ([10.0], [15.0])
    """
    waiting = [0.0] * len(shared)
    times: list[float] = []
    for present in range(1, workers + 1):
        times = [own * (1 + queue) for own, queue in zip(shared, waiting, strict=True)]
        rate = present / (alone + sum(times))
        waiting = [rate * time for time in times]
    return times


def _range(stages: Sequence[_Stage]) -> str:
    """Say by how much the distance between the workers decides a step."""
    shorter = sum(stage.ns - stage.apart_ns for stage in stages)
    longer = sum(stage.at_once_ns - stage.ns for stage in stages)
    return (
        f"parameter_server: taking turns, a step would be {shorter / 1e6:.3g} ms shorter; with all "
        f"workers at once, {longer / 1e6:.3g} ms longer"
    )


def _computing_ns(graph: Graph) -> float:
    """Return the time of a step on its busiest lane, with the pauses between its tasks.

    The optimizer does not count: the servers run it.
    """
    lane, src = graph.tasks["lane"].to_numpy(), graph.edges["src"].to_numpy()
    stays = ~update_tasks(graph)
    work = np.bincount(lane, graph.tasks["work_ns"] * stays)
    ordered = is_in(graph.edges["kind"], *CHAINS) & stays[src]
    lags = graph.edges["lag_ns"].to_numpy()[ordered]
    pauses = np.bincount(lane[src[ordered]], lags, len(work))
    return float((work + pauses).max() / graph.steps)


def _exchange(
    graph: Graph, gradients: Sequence[Gradient], stages: Sequence[_Stage], size: float, late: int
) -> Graph:
    """Let every step push, have updated, and pull, before the next one begins."""
    last = [
        each
        for each, after in zip(gradients, [*gradients[1:], None], strict=True)
        if after is None or after.step != each.step
    ]
    ready, host = (np.array([getattr(each, end) for each in last]) for end in ("row", "host"))
    device = has_device(graph)
    moved = np.full(len(last), COPY_PASSES * size)
    graph, copied = insert_moves(graph, ready if device else host, moved, name=COPY_IN)
    graph, legs = _legs(graph, stages, copied, size, late)
    graph = issue(graph, legs[0], host if device else copied)
    if not device:
        graph, waits = block(graph, legs[-1], legs[0])
        return insert_moves(graph, waits, moved, name=COPY_OUT)[0]
    graph = wait(graph, copied, legs[0])
    following, shift = after(graph, copied)
    graph = wait(graph, legs[-1], following, shift=shift)
    return insert_moves(graph, following, moved, name=COPY_OUT, place="before")[0]


def _legs(
    graph: Graph, stages: Sequence[_Stage], like: Rows, size: float, late: int
) -> tuple[Graph, list[Rows]]:
    """Put each stage on a lane of its own, one after the other."""
    legs: list[Rows] = []
    for stage in stages:
        graph, lane = add_lane(graph)
        graph, rows = put(
            graph,
            lane,
            like,
            name=PREFIX + stage.name,
            kind="host" if stage.name == UPDATE else "collective",
            work_ns=stage.ns,
            bytes=size,
            cost="roofline",
        )
        if legs:
            delay = late if stage.name == UPDATE else 0
            graph = replace(graph, edges=edge_rows(graph.edges, legs[-1], rows, "event", delay))
        legs.append(rows)
    return graph, legs
