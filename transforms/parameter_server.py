"""Parameter servers: workers push gradients and pull parameters, in step or at their own pace."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from foretrace.transforms.columns import Mask, Rows, is_in
from foretrace.transforms.fused_optimizer import host_update
from foretrace.transforms.gradients import Gradient, gradients, total_bytes
from foretrace.transforms.memory_moves import insert_moves
from foretrace.transforms.parameters import choice, whole
from foretrace.transforms.primitives import edge_rows
from foretrace.transforms.removal import remove
from foretrace.transforms.scenario import noted
from foretrace.transforms.schemes import of_workers, place_alone
from foretrace.transforms.selection import has_device
from foretrace.transforms.servers import Servers, update_ns
from foretrace.transforms.stragglers import late_ns
from foretrace.transforms.transfers import add_lane, after, block, issue, put, wait

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foretrace.graph.model import Graph

MODES = ("bsp", "asp")
PREFIX = "PS "
"""Names of the tasks that it adds begin so."""
UPDATE = "update"
COPY_IN, COPY_OUT = f"{PREFIX}copy in", f"{PREFIX}copy out"
COPY_PASSES = 2
"""Gradients are copied into one tensor, and parameters out of it."""


class _Stage(NamedTuple):
    """One leg of a step's exchange, in ns: of this worker, and what all others keep it busy for."""

    name: str
    own_ns: int
    others_ns: int = 0


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

    Notes
    -----
    Assumes: after backward a worker pushes all gradients as one tensor to all servers at once,
    which update and send parameters back; the worker does not update. In step, all workers push
    and pull at the same time, and share the servers' links. Otherwise workers come one after
    another, so that a step takes as long as alone, or as all of them keep a server's link busy.
    The step is that of one worker in either mode.
    Unknown: workers of different speed in mode "asp"; copies between device and host memory; what
    stale gradients cost in convergence.
    Source: Cynthia (ICPP 2019), Optimus (EuroSys 2018) for the closed forms in `closed_forms`; the
    project's runs over shaped links.

    Examples
    --------
    >>> from foretrace.transforms.literal import literal
    >>> graph = literal([("mm", "host", 0, 900, "backward"), ("step", "host", 0, 50, "optimizer")])
    >>> new = parameter_server(graph, workers=2, network="1Gbps", gradient_mb=1.0)
    >>> new.tasks[["name", "work_ns"]][new.tasks.kind == "collective"].values.tolist()
    [['PS push', 16794282], ['PS pull', 16794282]]
    """
    choice("mode", mode, MODES)
    whole("workers", workers, 1)
    whole("servers", servers, 1)
    placed = place_alone(
        graph, "parameter_server", workers + servers, cluster=cluster, network=network, nodes=nodes
    )
    found = gradients(graph, parameters=parameters, gradient_mb=gradient_mb)
    job = Servers(placed, placed.devices[:workers], placed.devices[workers:], ingress)
    size = float(total_bytes(found))
    late = late_ns(graph, workers) if mode == "bsp" else 0
    stages = (_in_step if mode == "bsp" else _one_by_one)(graph, job, size)
    update = update_tasks(graph)
    changed = _exchanging(graph, found, stages, size, late)
    padding = np.zeros(len(changed.tasks) - len(update), bool)
    changed = remove(changed, np.append(update, padding), gaps="drop")
    return noted(
        of_workers(changed, workers),
        f"parameter_server: {workers} workers push and pull {size / 1e6:.3g} MB, {servers} "
        f"servers, {placed.cluster.name}, {mode}",
        *([f"parameter_server: the slowest worker is {late / 1e6:.2g} ms late"] if late else []),
    )


def _in_step(graph: Graph, job: Servers, size: float) -> tuple[_Stage, ...]:
    """Return the legs of an exchange that all workers make at the same time."""
    return (
        _Stage("push", job.start_ns + round(size * job.push_ns_per_byte(together=True))),
        _Stage(UPDATE, update_ns(graph, size / len(job.servers), len(job.workers))),
        _Stage("pull", job.start_ns + round(size * job.pull_ns_per_byte(together=True))),
    )


def _one_by_one(graph: Graph, job: Servers, size: float) -> tuple[_Stage, ...]:
    """Return the legs of an exchange of one worker, and what those of the others take of each."""
    push, pull = (
        [round(size * leg(together=together)) for together in (False, True)]
        for leg in (job.push_ns_per_byte, job.pull_ns_per_byte)
    )
    update = update_ns(graph, size / len(job.servers), 1)
    return (
        _Stage("push", job.start_ns + push[0], push[1] - push[0]),
        _Stage(UPDATE, update, (len(job.workers) - 1) * update),
        _Stage("pull", job.start_ns + pull[0], pull[1] - pull[0]),
    )


def update_tasks(graph: Graph) -> Mask:
    """Return the tasks of the optimizer, which the servers run instead."""
    kernels = is_in(graph.tasks["phase"], "optimizer") & is_in(graph.tasks["kind"], "kernel")
    return host_update(graph) | kernels


def _exchanging(
    graph: Graph, found: Sequence[Gradient], stages: Sequence[_Stage], size: float, late: int
) -> Graph:
    """Let every step push, have updated, and pull, before the next one begins."""
    last = [
        each
        for each, after in zip(found, [*found[1:], None], strict=True)
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
    """Put each stage on a lane of its own, one after the other, with what the others take of it."""
    legs: list[Rows] = []
    for stage in stages:
        turns = 2 if stage.others_ns else 1
        graph, lane = add_lane(graph)
        graph, rows = put(
            graph,
            lane,
            np.repeat(like, turns),
            name=pd.Categorical(
                [PREFIX + stage.name, f"{PREFIX}{stage.name} of others"][:turns] * len(like)
            ),
            kind="host" if stage.name == UPDATE else "collective",
            work_ns=np.tile([stage.own_ns, stage.others_ns][:turns], len(like)),
            bytes=size,
            cost="roofline",
        )
        own = rows[::turns]
        if legs:
            delay = late if stage.name == UPDATE else 0
            graph = replace(graph, edges=edge_rows(graph.edges, legs[-1], own, "event", delay))
        legs.append(own)
    return graph, legs
