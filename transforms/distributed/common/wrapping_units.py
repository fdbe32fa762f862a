"""Parts of a model whose parameters travel together, and where a step needs and finishes them.

In: a graph whose trace names modules, and its gradients. Out: one `WrappingUnit` per part and step.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foretrace.errors import TransformError
from foretrace.transforms.edit.columns import Mask, Rows, is_in
from foretrace.transforms.edit.select import has_device, modules_matching, on_device

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foretrace.graph.model import Graph
    from foretrace.transforms.distributed.common.gradients import Gradient

NUMBERED = re.compile(r"^(?:[^.]+\.)*?\d+(?=\.|$)")
"""The outermost numbered module of a path: a layer of a list or a sequence."""
TOP = re.compile(r"^[^.]+")
EVERY_MODULE = r"[^.]+(?:\..*)?"
"""Regular expression by which every module that something ran in is a unit."""
REST = ""
"""Name of the unit of the parameters that no other unit has."""


class WrappingUnit(NamedTuple):
    """A part of the model in one step; rows are tasks, −1 where there is none.

    ``bytes`` is the size of its parameters, ``members`` their gradients by place. ``forward`` and
    ``backward`` are the first host tasks of its passes, ``needs_forward`` and ``needs_backward``
    the first tasks that compute with its parameters (device tasks where the job has a device). Its
    last gradient is final after ``ready``, and on the host after ``final``.
    """

    name: str
    step: int
    bytes: int
    members: tuple[int, ...]
    forward: int
    needs_forward: int
    backward: int
    needs_backward: int
    final: int
    ready: int


class _Firsts(NamedTuple):
    """First task per (step, unit) of one phase: on the host, and where the work is done."""

    host: dict[tuple[int, int], int]
    work: dict[tuple[int, int], int]


def find_units(
    graph: Graph, gradients: Sequence[Gradient], wrap: str | None = None
) -> list[WrappingUnit]:
    """Return the units of every step, in the order in which forward needs them.

    Parameters
    ----------
    graph
        The job of one rank.
    gradients
        Its gradients.
    wrap
        Regular expression of the modules that are units; by default the outermost numbered ones
        ("blocks.3"), or the outermost of all where none is numbered. What they leave is one unit
        more, needed from the first task on.

    Raises
    ------
    TransformError
        The trace names no modules, or does not tell whose gradients are whose.

    Examples
    --------
    >>> from foretrace.transforms.distributed.common.gradients import Gradient
    >>> from foretrace.graph.literal import literal
    >>> graph = literal(
    ...     [("a", "host", 0, 5, "forward"), ("b", "host", 0, 5, "backward")],
    ...     columns={"module": ["layers.0", "layers.0.fc"]},
    ... )
    >>> find_units(graph, [Gradient("layers.0.fc.weight", 64, 1, 0, 1, "layers.0.fc")])[0][:7]
    ('layers.0', 0, 64, (0,), 0, 0, 1)
    """
    of_task, names = _units_of_tasks(graph, wrap)
    number = {name: at for at, name in enumerate(names)}
    forward, backward = (_firsts(graph, of_task, phase) for phase in ("forward", "backward"))
    parts: dict[tuple[int, int], list[int]] = {}
    for at, each in enumerate(gradients):
        unit = number.get(_unit_name(each.module or "", names), -1)
        unit = unit if (each.step, unit) in forward.work else -1
        parts.setdefault((each.step, unit), []).append(at)
    if not all((step, -1) in forward.work for step, _ in parts):
        raise TransformError("a step of this job has no forward pass that uses its parameters")
    if all(unit < 0 for _, unit in parts):
        raise TransformError(
            "this trace does not tell which module a gradient belongs to; record the job with "
            "foretrace record, or with_stack=True of torch.profiler"
        )
    made = [
        _unit(graph, gradients, key, mine, [*names, REST][key[1]], forward, backward)
        for key, mine in parts.items()
    ]
    start = graph.tasks["start_ns"].to_numpy()
    return sorted(made, key=lambda unit: (unit.step, unit.name != REST, start[unit.forward]))


def _units_of_tasks(graph: Graph, wrap: str | None) -> tuple[Rows, list[str]]:
    """Return, per task, the unit it runs in (−1: none), and the units' names."""
    if wrap is not None:
        return modules_matching(graph, wrap)
    everything, paths = modules_matching(graph, EVERY_MODULE)
    pattern = NUMBERED if any(NUMBERED.match(path) for path in paths) else TOP
    names = sorted({match[0] for path in paths if (match := pattern.match(path))})
    place = {name: at for at, name in enumerate(names)}
    of_path = [place[match[0]] if (match := pattern.match(path)) else -1 for path in paths]
    return np.array([*of_path, -1], np.int64)[everything], names


def _unit_name(module: str, names: Sequence[str]) -> str:
    """Return the innermost of *names* that the *module* is, or is inside of."""
    around = (name for name in names if module == name or module.startswith(f"{name}."))
    return max(around, key=len, default=REST)


def _firsts(graph: Graph, of_task: Rows, phase: str) -> _Firsts:
    """Find the first task of each unit and step in *phase*; unit −1 is that of the whole phase."""
    inside = is_in(graph.tasks["phase"], phase)
    device = on_device(graph)
    computes = is_in(graph.lanes["kind"], "stream")[graph.tasks["lane"].to_numpy()]
    computes &= is_in(graph.tasks["kind"], "kernel")
    host = _first(graph, of_task, inside & ~device)
    return _Firsts(host, _first(graph, of_task, inside & computes) if has_device(graph) else host)


def _first(graph: Graph, of_task: Rows, where: Mask) -> dict[tuple[int, int], int]:
    rows = np.flatnonzero(where)
    start, step = (graph.tasks[c].to_numpy() for c in ("start_ns", "step"))
    first: dict[tuple[int, int], int] = {}
    for row in rows[np.lexsort((rows, start[rows]))].tolist():
        for unit in {int(of_task[row]), -1}:
            first.setdefault((int(step[row]), unit), row)
    return first


def _unit(
    graph: Graph,
    gradients: Sequence[Gradient],
    key: tuple[int, int],
    members: Sequence[int],
    name: str,
    forward: _Firsts,
    backward: _Firsts,
) -> WrappingUnit:
    start = graph.tasks["start_ns"].to_numpy()
    mine = [gradients[at] for at in members]
    last = max(mine, key=lambda each: start[each.row])
    host = max((each.host for each in mine), key=lambda row: start[row] if row >= 0 else -1)
    return WrappingUnit(
        name=name,
        step=key[0],
        bytes=sum(each.bytes for each in mine),
        members=tuple(members),
        forward=forward.host.get(key, -1),
        needs_forward=forward.work.get(key, -1),
        backward=backward.host.get(key, -1),
        needs_backward=backward.work.get(key, -1),
        final=host,
        ready=last.row,
    )
