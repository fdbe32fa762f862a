"""PowerSGD: gradients travel as products of two thin matrices."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foretrace.errors import TransformError
from foretrace.transforms.collectives.cost import collective_cost
from foretrace.transforms.costs.memcpy_cost import moving_ns
from foretrace.transforms.costs.rules import HOST_FIXED_NS, floor_ns
from foretrace.transforms.distributed.common.collective_tasks import collectives
from foretrace.transforms.distributed.common.dense_gradients import find_once
from foretrace.transforms.distributed.common.recast_collectives import (
    insert_before,
    insert_behind,
    insert_behind_wait,
    recast,
)
from foretrace.transforms.distributed.common.workers import workers_of
from foretrace.transforms.edit.parameters import whole
from foretrace.transforms.edit.provenance import add_note
from foretrace.transforms.edit.select import has_device

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from foretrace.graph.model import Graph
    from foretrace.transforms.cluster.placement import Placement
    from foretrace.transforms.distributed.common.gradients import Gradient
    from foretrace.transforms.edit.columns import Rows

PREFIX = "PowerSGD "
"""Names of the tasks that it adds or changes begin so."""
LEAST_SAVING = 2
"""A matrix is compressed where that takes at most half of its elements (torch's default)."""
BEFORE_PASSES, AFTER_PASSES = 6, 4
"""Passes over the matrices' memory in torch's hook: they are cloned (2), take the error of the last
step (3) and are multiplied (1); afterwards they are multiplied out (1) and compared (3)."""
MIDDLE_PASSES = 1
"""The matrices are multiplied once more between the two all-reduces."""
MIDDLE_OPERATIONS = 4
"""Operations per matrix between them: three for orthogonal columns, and one product."""


class _Bucket(NamedTuple):
    """What an all-reduce becomes: bytes of the two factors, of the rest, and of the matrices."""

    left: float
    right: float
    rest: float
    matrices: float
    tensors: int


def powersgd(graph: Graph, *, rank: int = 1) -> Graph:
    """Exchange gradients as products of two matrices with *rank* columns, as torch's hook does.

    Parameters
    ----------
    graph
        A job of several workers, after ddp(...), whose trace tells the shapes of its parameters.
    rank
        Columns of the factors.

    Notes
    -----
    Assumes: a matrix is compressed where that halves it at least; vectors travel as they are, with
    the first factor. The second factor is computed from the sum of the first ones and summed up as
    well, so that every bucket makes two all-reduces, one after the other. Operations move their
    bytes at the memory's bandwidth, and each has a fixed cost.
    Unknown: products on cores that communicate meanwhile; convergence. On CPUs, runs of the hook
    differ by 14 % between repeats.
    Source: PowerSGD (NeurIPS 2019); torch's powerSGD_hook.

    Examples
    --------
    >>> from foretrace.transforms.distributed.ddp.ddp import ddp
    >>> from foretrace.graph.literal import literal
    >>> graph = literal(
    ...     [("mm", "host", 0, 9_000_000, "backward"), ("accumulate", "host", 0, 5, "backward"),
    ...      ("step", "host", 0, 9, "optimizer")],
    ...     columns={"operator": [-1, 0, -1]},
    ...     operators={"name": ["torch::autograd::AccumulateGrad"], "parent": [-1],
    ...                "shapes": ["[[1000,250]]"]},
    ... )
    >>> new = powersgd(ddp(graph, workers=2, network="1Gbps")).tasks
    >>> new[new.kind == "collective"].bytes.tolist()
    [4000.0, 1000.0]
    """
    whole("rank", rank, 1)
    rows = collectives(graph, "all_reduce", "powersgd")
    placed = workers_of(graph, "powersgd")
    rows = rows[np.argsort(graph.tasks["start_ns"].to_numpy()[rows], kind="stable")]
    buckets = _buckets(graph, rows, rank)
    old = graph.tasks["bytes"].to_numpy()[rows]
    first, second, matrices = (
        np.array(column, np.float64)
        for column in (
            [each.left + each.rest for each in buckets],
            [each.right for each in buckets],
            [each.matrices for each in buckets],
        )
    )
    work = graph.tasks["work_ns"].to_numpy()[rows] + _costs(placed, first) - _costs(placed, old)
    changed = recast(
        graph, rows, name=f"{PREFIX}all_reduce", work_ns=work, size=first, cost="roofline"
    )
    changed, last = _second_factor(changed, rows, placed, second, buckets)
    changed = insert_before(
        changed, rows, BEFORE_PASSES * matrices, f"{PREFIX}compress", "powersgd"
    )
    changed = insert_behind_wait(changed, last, AFTER_PASSES * matrices, f"{PREFIX}restore")
    return add_note(
        changed,
        f"powersgd: rank {rank}, {(first + second).sum() / 1e6:.3g} MB travel instead of "
        f"{old.sum() / 1e6:.3g} in {graph.steps} steps",
    )


def _buckets(graph: Graph, rows: Rows, rank: int) -> list[_Bucket]:
    """Return what each of *rows* becomes: buckets hold gradients in the order they are ready."""
    coming = iter(find_once(graph, "powersgd"))
    buckets: list[_Bucket] = []
    for size in graph.tasks["bytes"].to_numpy()[rows].tolist():
        members: list[Gradient] = []
        while sum(each.bytes for each in members) < size and (one := next(coming, None)):
            members.append(one)
        if sum(each.bytes for each in members) != size or not all(m.shape for m in members):
            raise TransformError(
                "powersgd cannot tell which parameters an all-reduce adds up; put ddp(workers=..., "
                "cluster=...) before it, on a recording that tells the shapes of all parameters"
            )
        buckets.append(_bucket(members, rank))
    return buckets


def _bucket(members: Sequence[Gradient], rank: int) -> _Bucket:
    left = right = rest = matrices = 0.0
    count = 0
    for each in members:
        rows, columns = each.shape[0], math.prod(each.shape[1:])
        least = min(rank, rows, columns)
        if len(each.shape) == 1 or (rows + columns) * least * LEAST_SAVING >= rows * columns:
            rest += each.bytes
            continue
        left += rows * least * each.width
        right += columns * least * each.width
        matrices += each.bytes
        count += 1
    return _Bucket(left, right, rest, matrices, count)


def _costs(placed: Placement, sizes: npt.NDArray[np.float64]) -> Rows:
    return np.array(
        [collective_cost(placed.cluster, placed.devices, "all_reduce", size).ns for size in sizes]
    )


def _second_factor(
    graph: Graph,
    rows: Rows,
    placed: Placement,
    sizes: npt.NDArray[np.float64],
    buckets: Sequence[_Bucket],
) -> tuple[Graph, Rows]:
    """Let the second factor be computed and summed up behind the first, on the same lane.

    Also return the last task of each exchange.
    """
    some = np.flatnonzero(sizes > 0)
    if not len(some):
        return graph, rows
    device = has_device(graph)
    each = floor_ns(graph) if device else HOST_FIXED_NS
    products = moving_ns(
        graph, np.array([MIDDLE_PASSES * buckets[at].matrices for at in some.tolist()])
    )
    work = products + MIDDLE_OPERATIONS * each * np.array(
        [buckets[at].tensors for at in some.tolist()]
    )
    graph, middle = insert_behind(
        graph,
        rows[some],
        name=f"{PREFIX}second factor",
        kind="kernel" if device else "host",
        work_ns=work,
        cost="roofline",
    )
    graph, second = insert_behind(
        graph,
        middle,
        name=f"{PREFIX}all_reduce",
        kind="collective",
        work_ns=_costs(placed, sizes[some]),
        bytes=sizes[some],
        cost="roofline",
    )
    last = rows.copy()
    last[some] = second
    return graph, last
