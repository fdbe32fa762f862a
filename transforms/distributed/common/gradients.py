"""The gradients of a job: how large they are, and after which task each is final.

In: a graph. Out: one `Gradient` per parameter and backward pass, in the order in which backward
finishes them. Sizes come from the user, from the operators' shapes, from what the recorder saw of
the model, from what a recorded DDP job copies and reduces, or from the grids of the optimizer's
kernels.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foretrace.errors import TransformError
from foretrace.transforms.collectives.all_reduces import gradient_exchanges
from foretrace.transforms.costs.activations import element_bytes
from foretrace.transforms.costs.operators import parse_shapes
from foretrace.transforms.distributed.common.backward_passes import Moments, find_moments
from foretrace.transforms.distributed.common.bucket_copies import read_copies, ready_rows
from foretrace.transforms.distributed.common.gradient_ready import evenly, last_launched, per_step
from foretrace.transforms.distributed.common.gradient_sizes import (
    WIDTH,
    GradientSize,
    read_given,
    read_grids,
    read_recorded,
    refuse_unknown_sizes,
)
from foretrace.transforms.distributed.common.sparse_rows import (
    INDEX_BYTES,
    SparseRows,
    count_distinct,
    find_sparse,
)
from foretrace.transforms.edit.columns import is_in
from foretrace.transforms.edit.select import call_of, has_device, on_device

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foretrace.graph.model import Graph


class Gradient(NamedTuple):
    """One parameter's gradient in one backward pass of a step.

    ``row`` is the task after which it is final: a device task where the job has a device, else the
    host task itself. ``host`` is the host task after which the framework's hook runs (−1: unknown).
    ``name`` is the parameter, ``module`` the module it belongs to; ``shape`` is empty where
    unknown, ``width`` the bytes of one element. ``source`` is one of `SOURCES`.
    ``turn`` counts the passes of a step. ``rows`` is 0 for a dense gradient; a sparse one has so
    many, each named by ``dims`` indices, and ``bytes`` are those of rows and indices.
    """

    name: str | None
    bytes: int
    row: int
    step: int
    host: int = -1
    module: str | None = None
    shape: tuple[int, ...] = ()
    width: int = WIDTH
    source: str = "shapes"
    turn: int = 0
    rows: int = 0
    dims: int = 1


def find_gradients(
    graph: Graph,
    *,
    parameters: Sequence[float] | None = None,
    gradient_mb: float | None = None,
    no_sync: bool | None = None,
) -> list[Gradient]:
    """Return the gradients of one rank, per step in the order in which backward finishes them.

    A step may have several passes, each with gradients of its own (`backward_passes`).

    Parameters
    ----------
    graph
        A job of one rank.
    parameters
        Sizes of the parameters in MB (10^6 bytes), in the order of the model's definition, where
        the trace does not tell. Backward is taken to finish them in reverse order.
    gradient_mb
        Their sum in MB, where single sizes are unknown; taken to be even.
    no_sync
        Whether backward passes that only add to gradients finish none; unknown by default.

    Raises
    ------
    TransformError
        The job has no backward pass, or nothing tells the sizes.

    Examples
    --------
    >>> from foretrace.graph.literal import literal
    >>> from foretrace.transforms.costs.operators import ACCUMULATE
    >>> graph = literal(
    ...     [("mm", "host", 0, 50, "backward"), ("accumulate", "host", 0, 5, "backward")],
    ...     columns={"operator": [-1, 0]},
    ...     operators={"name": [ACCUMULATE], "parent": [-1], "shapes": ["[[128,64]]"]},
    ... )
    >>> [(g.bytes, g.row, g.step) for g in find_gradients(graph)]
    [(32768, 1, 0)]
    """
    moments = find_moments(graph, no_sync=no_sync)
    pieces = int(np.bincount(moments.passes).max(initial=0))
    given = read_given(parameters, gradient_mb, pieces)
    if given is not None:
        return _place(graph, moments, given, "given")
    if len(moments.step) and (from_shapes := _from_shapes(graph, moments)) is not None:
        return from_shapes
    if recorded := read_recorded(graph):
        return _place(graph, moments, recorded, "model")
    if exchanged := _from_copies(graph) or _from_all_reduces(graph):
        return exchanged
    if grids := read_grids(graph, pieces):
        return _place(graph, moments, grids, "grids")
    raise refuse_unknown_sizes()


def _place(
    graph: Graph, moments: Moments, sizes: Sequence[GradientSize], source: str
) -> list[Gradient]:
    """Return gradients of these *sizes*, in the model's order, where they become final."""
    passes = len(np.unique(moments.passes))
    if 0 < len(moments.step) == len(sizes) * passes:
        return _join(graph, moments, list(sizes[::-1]) * passes, source)
    return _spread(graph, sizes[::-1], source)


def total_bytes(gradients: Sequence[Gradient]) -> int:
    """Return the bytes of all gradients of one step."""
    return sum(each.bytes for each in gradients if each.step == gradients[0].step)


def _from_shapes(graph: Graph, moments: Moments) -> list[Gradient] | None:
    """Return the gradients with the shapes of the operators that accumulate them, if all are known.

    The model's names are given to the shapes where the recorder saw both.
    """
    operators = graph.operators
    texts, types = (operators[c].astype(object) for c in ("shapes", "dtypes"))
    if operators["shapes"].isna().to_numpy()[moments.operator].any():
        return None
    sparse = find_sparse(graph)
    sizes: list[GradientSize] = []
    for operator in moments.operator.tolist():
        shape = (parse_shapes(str(texts.iat[operator])) or ((),))[0]
        width = element_bytes(str(types.iat[operator]))
        sizes.append(GradientSize(None, math.prod(shape) * width, shape, width))
    named = [
        _send_rows(graph, size, sparse.get(operator))
        for size, operator in zip(
            _name(graph, moments, sizes), moments.operator.tolist(), strict=True
        )
    ]
    return _join(graph, moments, named, "shapes")


def _send_rows(graph: Graph, size: GradientSize, sparse: SparseRows | None) -> GradientSize:
    """Return *size* with the rows and bytes that are sent, if the gradient is *sparse*."""
    if sparse is None:
        return size
    rows = count_distinct(graph, size.name, sparse, math.prod(size.shape[: sparse.dims]))
    row_bytes = INDEX_BYTES * sparse.dims + math.prod(size.shape[sparse.dims :]) * size.width
    return size._replace(bytes=rows * row_bytes, rows=rows, dims=sparse.dims)


def _name(graph: Graph, moments: Moments, sizes: list[GradientSize]) -> list[GradientSize]:
    """Give each size the last parameter of its shape that has no gradient yet in its pass.

    Of those the ones of the task's own module come first: backward runs in reverse order.
    """
    recorded = read_recorded(graph) or []
    modules = graph.tasks["module"].astype(object).to_numpy()[moments.host]
    passes = moments.passes
    named: list[GradientSize] = []
    free: dict[tuple[int, ...], list[str]] = {}
    for at, size in enumerate(sizes):
        if at == 0 or passes[at] != passes[at - 1]:
            free = defaultdict(list)
            for parameter in recorded:
                free[parameter.shape].append(str(parameter.name))
        names = free[size.shape]
        mine = [name for name in names if name.rpartition(".")[0] == modules[at]]
        if chosen := (mine or names)[-1:]:
            names.remove(chosen[0])
        named.append(size._replace(name=next(iter(chosen), None)))
    return named


def _join(
    graph: Graph, moments: Moments, sizes: Sequence[GradientSize], source: str
) -> list[Gradient]:
    """Put sizes and moments together; on a device a gradient is final after its last kernel."""
    rows = last_launched(graph, moments.host) if has_device(graph) else moments.host
    modules = graph.tasks["module"].astype(object)
    return [
        Gradient(
            name=size.name,
            bytes=size.bytes,
            row=row,
            step=step,
            host=host,
            module=_module_of(size.name) or _text(modules.iat[host]),
            shape=size.shape,
            width=size.width,
            source=source,
            turn=turn,
            rows=size.rows,
            dims=size.dims,
        )
        for size, row, step, host, turn in zip(
            sizes, *(c.tolist() for c in (rows, moments.step, moments.host, moments.turn)),
            strict=True,
        )
    ]  # fmt: skip


def _spread(graph: Graph, sizes: Sequence[GradientSize], source: str) -> list[Gradient]:
    """Place gradients evenly over the backward tasks of each step, the last at the end."""
    device = has_device(graph)
    where = is_in(graph.tasks["phase"], "backward")
    where &= is_in(graph.tasks["kind"], "kernel") if device else ~on_device(graph)
    if not where.any():
        raise TransformError("this job has no backward pass: there are no gradients")
    modules = graph.tasks["module"].astype(object)
    return [
        Gradient(size.name, size.bytes, row, step, -1 if device else row,
                 _module_of(size.name) or _text(modules.iat[row]), size.shape, size.width, source)
        for step, rows in per_step(graph, where)
        for size, row in zip(sizes, evenly(rows, len(sizes)).tolist(), strict=True)
    ]  # fmt: skip


def _from_copies(graph: Graph) -> list[Gradient]:
    """Return the gradients as a recorded DDP job copies them out of its buckets."""
    return [
        Gradient(None, size, row, step, host, source="copies")
        for step, size, row, host in read_copies(graph)
    ]


def _from_all_reduces(graph: Graph) -> list[Gradient]:
    """Return one gradient per recorded bucket; none where a trace tells no bytes."""
    size = graph.tasks["bytes"].to_numpy()
    reduced = gradient_exchanges(graph)
    if not reduced.any() or not (size[reduced] > 0).all():
        return []
    calls = call_of(graph)
    return [
        Gradient(None, round(size[row]), ready, step, int(calls[ready]), source="buckets")
        for step, rows in per_step(graph, reduced)
        for row, ready in zip(rows.tolist(), ready_rows(graph, rows).tolist(), strict=True)
    ]


def _module_of(name: str | None) -> str | None:
    return name.rpartition(".")[0] or None if name else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
