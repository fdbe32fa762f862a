"""Fully sharded data parallel: parameters gathered before they are needed, gradients scattered."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from foretrace.errors import TransformError
from foretrace.transforms.collectives.cost import collective_cost
from foretrace.transforms.costs.assumed import Assumed
from foretrace.transforms.costs.memcpy_cost import compute_device, insert_moves
from foretrace.transforms.costs.optimizer_traffic import host_update
from foretrace.transforms.costs.peak_memory import change_memory
from foretrace.transforms.costs.rules import HOST_FIXED_NS, floor_ns, shorten
from foretrace.transforms.distributed.common.assumed_layers import with_layers
from foretrace.transforms.distributed.common.blocking_host import lend, wake_ns
from foretrace.transforms.distributed.common.dense_gradients import find_once
from foretrace.transforms.distributed.common.overlap import slow_overlaps
from foretrace.transforms.distributed.common.slowest_of_n import late_ns
from foretrace.transforms.distributed.common.transfers import (
    add_lane,
    before,
    block,
    issue,
    put,
    wait,
)
from foretrace.transforms.distributed.common.workers import of_workers, place_alone
from foretrace.transforms.distributed.common.wrapping_units import REST, WrappingUnit, find_units
from foretrace.transforms.edit.columns import Rows, is_in
from foretrace.transforms.edit.parameters import whole
from foretrace.transforms.edit.primitives import insert, scale
from foretrace.transforms.edit.provenance import add_note
from foretrace.transforms.edit.select import first_per_step, has_device

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foretrace.graph.model import Graph
    from foretrace.transforms.cluster.placement import Placement

STAGES = (1, 2, 3)
SHARED_FROM = {
    1: ("optimizer_state",),
    2: ("optimizer_state", "gradients"),
    3: ("optimizer_state", "gradients", "parameters"),
}
"""What of the memory is shared out at each stage (ZeRO)."""
PREFIX = "FSDP "
"""Names of the tasks that it adds begin so."""
GATHER = "all_gather"
TENSOR = Assumed(
    "FSDP's own Python per parameter and step (hooks, views, an optimizer on shares), ns",
    *(450_000, 150_000, 600_000),
    "two ranks over a link without limit took 0.43 and 0.47 ms per parameter longer than alone, "
    "collectives and copies taken off (models gpt and wide, torch 2.13); faster cores take less",
    ("network-epyc-1: gpt and wide, two ranks, no limit",),
    more_is_longer=True,
)
COPY_PASSES = 2
"""A copy between parameters and a unit's buffer reads and writes every byte once; so does one of a
worker's own share, on the other side of the collective."""


class _Move(NamedTuple):
    """One collective: what runs, of how many bytes.

    A gather is issued before the host task ``call``, anything else behind it. It may start after
    ``ready`` (−1: at once), ``ready_shift`` repetitions earlier; ``needed`` waits for it.
    """

    kind: str
    bytes: int
    call: int
    ready: int
    ready_shift: int
    needed: int


def fsdp(
    graph: Graph,
    *,
    workers: int,
    cluster: str | None = None,
    network: str | None = None,
    nodes: int | None = None,
    stage: int = 3,
    prefetch: int | None = None,
    wrap: str | None = None,
    layers: int | None = None,
    gradient_mb: float | None = None,
) -> Graph:
    """Train on *workers* processes that each keep a share of parameters and optimizer state.

    Parameters
    ----------
    graph
        The job of one process.
    workers, cluster, network, nodes
        As `ddp` takes them.
    stage
        3: every unit is gathered before its forward pass and again before its backward pass, and
        its gradients are reduced and scattered. 2: gathered once, before forward. 1: gathered once,
        and gradients are all-reduced.
    prefetch
        How many units ahead a gather is issued: by default 1 on a device, and 0 on a CPU, where
        torch waits for each collective at once.
    wrap
        Regular expression of the modules that are units; by default the outermost numbered ones.
    layers
        How many layers the model has, where the trace names no modules.
    gradient_mb
        Size of all gradients in MB (10^6 bytes), where the trace does not tell.

    Notes
    -----
    Assumes: units are gathered and scattered one after another, all on one stream. On a CPU each
    collective keeps the host waiting, and gloo runs a reduce_scatter as a whole all-reduce. The
    first gather of a step waits for the optimizer. Gathered parameters are copied out of one
    buffer, gradients into one. Every worker updates its share. On a CPU each parameter costs what
    torch's own Python takes.
    Of the memory each worker holds its share of what the stage shares, at stage 3 and the units
    that are gathered at a time.
    Unknown: that Python on the host of a device; clipping by the global norm.
    Source: ZeRO (SC 2020); torch's ``fully_shard``; the project's runs over shaped links.

    Examples
    --------
    >>> from foretrace.graph.literal import literal
    >>> graph = literal(
    ...     [("mm", "host", 0, 50, "forward"), ("mm", "host", 0, 90, "backward"),
    ...      ("accumulate", "host", 0, 5, "backward"), ("update", "host", 0, 5, "optimizer")],
    ...     columns={"module": ["layers.0"] * 4, "operator": [-1, -1, 0, -1]},
    ...     operators={"name": ["torch::autograd::AccumulateGrad"], "parent": [-1],
    ...                "shapes": ["[[512,512]]"]},
    ... )
    >>> new = fsdp(graph, workers=2, network="1Gbps")
    >>> new.tasks.name[new.tasks.kind == "collective"].tolist()
    ['FSDP all_gather', 'FSDP all_gather', 'FSDP reduce_scatter']
    """
    if stage not in STAGES:
        raise TransformError(f"stage={stage!r} is unknown; choose 1, 2 or 3")
    device = has_device(graph)
    ahead = int(device) if prefetch is None else whole("prefetch", prefetch, 0)
    placed = place_alone(graph, "fsdp", workers, cluster=cluster, network=network, nodes=nodes)
    if workers == 1:
        return graph
    graph = with_layers(graph, layers, "fsdp")
    units = find_units(graph, find_once(graph, "fsdp", gradient_mb=gradient_mb), wrap)
    moves = [
        move
        for step in dict.fromkeys(unit.step for unit in units)
        for move in _moves(graph, [u for u in units if u.step == step], stage, ahead)
    ]
    late = late_ns(graph, workers)
    changed = _communicate(graph, placed, moves, late)
    changed = changed if device else _keep_busy(changed, units)
    changed = _shard_update(changed, workers)
    changed = change_memory(changed, 1 / workers, *SHARED_FROM[stage])
    if stage == max(STAGES):
        gathered = (ahead + 1) * max((unit.bytes for unit in units), default=0)
        changed = change_memory(changed, 1.0, "temporary", added=gathered)
    size = sum(unit.bytes for unit in units) / len({unit.step for unit in units})
    return add_note(
        of_workers(changed, workers, placed),
        f"fsdp: {len(units) // graph.steps} units, {size / 1e6:.3g} MB of parameters, on {workers} "
        f"workers of {placed.cluster.name}; stage {stage}, gathered {ahead} units ahead",
        *([f"fsdp: the slowest worker is {late / 1e6:.3g} ms late"] if late else []),
    )


def _moves(graph: Graph, units: Sequence[WrappingUnit], stage: int, ahead: int) -> list[_Move]:
    """Return the collectives of one step, in the order in which the host issues them."""
    start = graph.tasks["start_ns"].to_numpy()
    turns = [(unit, unit.forward, unit.needs_forward) for unit in units]
    if stage == max(STAGES):
        again = [unit for unit in units if unit.name != REST and unit.needs_backward >= 0]
        again.sort(key=lambda unit: start[unit.backward])
        turns += [(unit, unit.backward, unit.needs_backward) for unit in again]
    opened = np.array([max(0, at - ahead) for at in range(len(turns))])
    needs = np.array([needed for *_, needed in turns])
    ready, shift = before(graph, needs[opened])
    gathers = [
        _Move(GATHER, unit.bytes, turns[opened[at]][1], int(ready[at]), int(shift[at]), needed)
        for at, (unit, _, needed) in enumerate(turns)
    ]
    reduce = "all_reduce" if stage == min(STAGES) else "reduce_scatter"
    scatters = [_Move(reduce, unit.bytes, unit.final, unit.ready, 0, -1) for unit in units]
    return sorted([*gathers, *scatters], key=lambda move: (start[move.call], move.kind != GATHER))


def _communicate(graph: Graph, placed: Placement, moves: Sequence[_Move], late: int) -> Graph:
    """Put *moves* into *graph*: on a CPU the host waits for each, on a device streams do."""
    gathers = np.array([move.kind == GATHER for move in moves])
    size, call, needed, ready, shift = (
        np.array([getattr(move, name) for move in moves])
        for name in ("bytes", "call", "needed", "ready", "ready_shift")
    )
    device = has_device(graph)
    passes = COPY_PASSES * (1 + 1 / len(placed.devices))
    graph, copied = insert_moves(
        graph,
        (ready if device else call)[~gathers],
        passes * size[~gathers],
        name=f"{PREFIX}copy in",
    )
    graph, lane = _lane(graph)
    graph = slow_overlaps(graph, [lane], placed.cluster)
    costs = [
        collective_cost(placed.cluster, placed.devices, move.kind, move.bytes) for move in moves
    ]
    graph, rows = put(
        graph,
        lane,
        call,
        name=pd.Categorical([PREFIX + move.kind for move in moves]),
        work_ns=lend(graph, placed.cluster, call, np.array([cost.ns for cost in costs]))
        + _lateness(graph, call, late),
        bytes=size.astype(np.float64),
        cost=pd.Categorical([cost.source for cost in costs]),
    )
    (ready if device else call)[~gathers] = copied
    if device:
        graph = wait(graph, ready, rows, shift=shift)
    graph = issue(graph, rows[gathers], call[gathers], place="before")
    graph = issue(graph, rows[~gathers], call[~gathers])
    late_return_ns = 0 if device else wake_ns(placed.cluster)
    graph = wait(graph, rows[gathers], needed[gathers], return_ns=late_return_ns)
    if device:
        graph = wait(graph, rows[~gathers], _next_update(graph, call[~gathers]))
    else:
        graph, _ = block(graph, rows[~gathers], return_ns=late_return_ns)
    graph, _ = insert_moves(
        graph,
        needed[gathers],
        passes * size[gathers],
        name=f"{PREFIX}copy out",
        place="before",
    )
    return graph


def _keep_busy(graph: Graph, units: Sequence[WrappingUnit]) -> Graph:
    """Let the host of a unit do, behind its last gradient, what sharding costs in Python."""
    hosts = np.array([unit.final for unit in units])
    counts = np.array([len(unit.members) for unit in units])
    work = np.rint(TENSOR.now() * counts).astype(np.int64)
    return insert(
        graph, hosts, name=f"{PREFIX}bookkeeping", kind="host", work_ns=work, cost="prior"
    )[0]


def _lateness(graph: Graph, like: Rows, late: int) -> Rows:
    """Return *late* for the last collective of each step, where all workers have waited for all."""
    step = graph.tasks["step"].to_numpy()[like]
    last = np.append(step[1:] != step[:-1], [True])[: len(step)]
    return np.where(last, late, 0)


def _lane(graph: Graph) -> tuple[Graph, int]:
    """Return *graph* with the lane of its collectives: a stream beside the kernels, else a link."""
    device = compute_device(graph)
    return add_lane(graph) if device < 0 else add_lane(graph, kind="stream", device=device)


def _next_update(graph: Graph, like: Rows) -> Rows:
    """Return, per task, the first kernel of its step's optimizer; −1 where there is none."""
    where = is_in(graph.tasks["phase"], "optimizer") & is_in(graph.tasks["kind"], "kernel")
    if not where.any():
        return np.full(len(like), -1, np.int64)
    first = first_per_step(graph, where)
    of_step = dict(zip(graph.tasks["step"].to_numpy()[first].tolist(), first.tolist(), strict=True))
    return np.array([of_step.get(s, -1) for s in graph.tasks["step"].to_numpy()[like].tolist()])


def _shard_update(graph: Graph, workers: int) -> Graph:
    """Let the optimizer update a share of every parameter; its fixed costs stay."""
    work = graph.tasks["work_ns"].to_numpy()
    if has_device(graph):
        where = is_in(graph.tasks["phase"], "optimizer") & is_in(graph.tasks["kind"], "kernel")
        new = shorten(work, 1 / workers, floor_ns(graph))
    else:
        where = host_update(graph)
        fixed = np.minimum(work, HOST_FIXED_NS)
        new = fixed + (work - fixed) / workers
    return scale(graph, where, new / np.maximum(work, 1), cost="roofline")
