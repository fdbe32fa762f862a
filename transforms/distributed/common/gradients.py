"""The gradients of a job: how large they are, and after which task each is final.

In: a graph. Out: one `Gradient` per parameter and step, in the order in which backward finishes
them. Sizes come from the user, from the operators' shapes, from what the recorder saw of the model,
from what a recorded DDP job copies and reduces, or from the grids of the optimizer's kernels.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foretrace.errors import TransformError
from foretrace.transforms.collectives.all_reduces import gradient_exchanges
from foretrace.transforms.costs.activations import element_bytes
from foretrace.transforms.costs.cpu_matmul import nearest
from foretrace.transforms.costs.operators import ACCUMULATE, parse_shapes
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
from foretrace.transforms.edit.columns import Rows, is_in
from foretrace.transforms.edit.select import call_of, has_device, on_device

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foretrace.graph.model import Graph


class Gradient(NamedTuple):
    """One parameter's gradient in one step.

    ``row`` is the task after which it is final: a device task where the job has a device, else the
    host task itself. ``host`` is the host task after which the framework's hook runs (−1: unknown).
    ``name`` is the parameter, ``module`` the module it belongs to; ``shape`` is empty where
    unknown, ``width`` the bytes of one element. ``source`` is one of `SOURCES`.
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


class _Moments(NamedTuple):
    """When gradients become final: step, host task, and the operator that accumulates each."""

    step: Rows
    host: Rows
    operator: Rows


def find_gradients(
    graph: Graph, *, parameters: Sequence[float] | None = None, gradient_mb: float | None = None
) -> list[Gradient]:
    """Return the gradients of one rank, per step in the order in which backward finishes them.

    A step with several backward passes over the same parameters (gradient accumulation) finishes
    its gradients in the last one.

    Parameters
    ----------
    graph
        A job of one rank.
    parameters
        Sizes of the parameters in MB (10^6 bytes), in the order of the model's definition, where
        the trace does not tell. Backward is taken to finish them in reverse order.
    gradient_mb
        Their sum in MB, where single sizes are unknown; taken to be even.

    Raises
    ------
    TransformError
        The job has no backward pass, or nothing tells the sizes.

    Examples
    --------
    >>> from foretrace.graph.literal import literal
    >>> graph = literal(
    ...     [("mm", "host", 0, 50, "backward"), ("accumulate", "host", 0, 5, "backward")],
    ...     columns={"operator": [-1, 0]},
    ...     operators={"name": [ACCUMULATE], "parent": [-1], "shapes": ["[[128,64]]"]},
    ... )
    >>> [(g.bytes, g.row, g.step) for g in find_gradients(graph)]
    [(32768, 1, 0)]
    """
    moments = _moments(graph)
    pieces = int(np.bincount(moments.step).max(initial=0))
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
    graph: Graph, moments: _Moments, sizes: Sequence[GradientSize], source: str
) -> list[Gradient]:
    """Return gradients of these *sizes*, in the model's order, where they become final."""
    steps = len(np.unique(moments.step))
    if 0 < len(moments.step) == len(sizes) * steps:
        return _join(graph, moments, list(sizes[::-1]) * steps, source)
    return _spread(graph, sizes[::-1], source)


def total_bytes(gradients: Sequence[Gradient]) -> int:
    """Return the bytes of all gradients of one step."""
    return sum(each.bytes for each in gradients if each.step == gradients[0].step)


def _moments(graph: Graph) -> _Moments:
    """Find the tasks that accumulate gradients; of several passes over the same ones the last."""
    operators, tasks = graph.operators, graph.tasks
    once = is_in(operators["name"], ACCUMULATE) if len(operators) else np.zeros(0, bool)
    if not once.any():
        return _Moments(*(np.empty(0, np.int64) for _ in _Moments._fields))
    number = np.where(once, np.arange(len(once), dtype=np.float64), np.nan)
    around = np.append(nearest(operators["parent"].to_numpy().astype(np.int64), number), np.nan)
    own = around[tasks["operator"].to_numpy()]
    start, step = (tasks[c].to_numpy().astype(np.int64) for c in ("start_ns", "step"))
    rows = np.flatnonzero(np.isfinite(own) & ~on_device(graph) & (step >= 0))
    rows = rows[np.lexsort((rows, start[rows], step[rows]))]
    operator = own[rows].astype(np.int64)
    _, from_end = np.unique(operator[::-1], return_index=True)
    last = np.sort(len(rows) - 1 - from_end)
    return _last_pass(graph, _Moments(step[rows[last]], rows[last], operator[last]))


def _last_pass(graph: Graph, moments: _Moments) -> _Moments:
    """Keep the last of several backward passes of a step that accumulate the same gradients."""
    keep = np.ones(len(moments.step), bool)
    start = graph.tasks["start_ns"].to_numpy()
    host = is_in(graph.tasks["phase"], "forward") & ~on_device(graph)
    shapes = graph.operators["shapes"].astype(object).fillna("").to_numpy()
    for step in np.unique(moments.step).tolist():
        here = np.flatnonzero(moments.step == step)
        forward = np.sort(start[host & (graph.tasks["step"].to_numpy() == step)])
        passes = np.searchsorted(forward, start[moments.host[here]])
        each = [here[passes == one] for one in np.unique(passes)]
        keys = {tuple(shapes[moments.operator[rows]]) for rows in each}
        if len(each) > 1 and len(keys) == 1:
            keep[here] = passes == passes[-1]
    return _Moments(*(column[keep] for column in moments))


def _from_shapes(graph: Graph, moments: _Moments) -> list[Gradient] | None:
    """Return the gradients with the shapes of the operators that accumulate them, if all are known.

    The model's names are given to the shapes where the recorder saw both.
    """
    operators = graph.operators
    texts, types = (operators[c].astype(object) for c in ("shapes", "dtypes"))
    if operators["shapes"].isna().to_numpy()[moments.operator].any():
        return None
    sizes: list[GradientSize] = []
    for operator in moments.operator.tolist():
        shape = (parse_shapes(str(texts.iat[operator])) or ((),))[0]
        width = element_bytes(str(types.iat[operator]))
        sizes.append(GradientSize(None, math.prod(shape) * width, shape, width))
    named = _name(graph, moments, sizes)
    return _join(graph, moments, named, "shapes")


def _name(graph: Graph, moments: _Moments, sizes: list[GradientSize]) -> list[GradientSize]:
    """Give each size the last parameter of its shape that has no gradient yet in its step.

    Of those the ones of the task's own module come first: backward runs in reverse order.
    """
    recorded = read_recorded(graph) or []
    modules = graph.tasks["module"].astype(object).to_numpy()[moments.host]
    named: list[GradientSize] = []
    free: dict[tuple[int, ...], list[str]] = {}
    for at, size in enumerate(sizes):
        if at == 0 or moments.step[at] != moments.step[at - 1]:
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
    graph: Graph, moments: _Moments, sizes: Sequence[GradientSize], source: str
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
        )
        for size, row, step, host in zip(
            sizes, rows.tolist(), moments.step.tolist(), moments.host.tolist(), strict=True
        )
    ]


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
