"""Which linear layers form pairs that several devices can share, and what runs inside a pair.

In: the graph of one rank with modules and shapes. Out: the share of each task that is inside a
pair, and where the sums of the devices' parts are needed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foretrace.errors import TransformError
from foretrace.transforms.costs.activations import element_bytes
from foretrace.transforms.costs.operators import parse_shapes, task_operator_classes
from foretrace.transforms.edit.columns import Mask, Rows, by_category, is_in
from foretrace.transforms.edit.select import has_device, launch_edges, on_device

if TYPE_CHECKING:
    import numpy.typing as npt

    from foretrace.graph.model import Graph

LINEAR = ("linear", "mkldnn_linear", "addmm", "mm", "matmul")
"""Operators that multiply by a weight, the outermost first."""
MIXING = ("attention", "softmax", "pointwise")
"""Classes of operators of which one stands between the two layers of a pair."""
MATRIX = 2
"""Dimensions of a weight."""


class Layer(NamedTuple):
    """One run of a linear layer: its operator, its module, its sizes, its tasks in the step.

    *samples* x *inputs* values of *width* bytes go in, *samples* x *outputs* come out; ``first``
    and ``last`` are places in the order of the step's forward tasks.
    """

    operator: int
    module: str
    samples: int
    inputs: int
    outputs: int
    width: int
    first: int
    last: int


class Sum(NamedTuple):
    """A sum over the devices: the host task after which it is needed, and its bytes."""

    host: int
    bytes: int


@dataclass(frozen=True)
class SharedLayers:
    """``share`` of each task's work that is inside a pair; ``grid``: kernels whose grid shrinks.

    ``sums`` in the order of the host; ``pairs`` names the pairs by their first module.
    """

    share: npt.NDArray[np.float64]
    grid: Mask
    sums: tuple[Sum, ...]
    pairs: tuple[str, ...]


def share_layers(graph: Graph, degree: int) -> SharedLayers:
    """Find the pairs of *graph*.

    Raises
    ------
    TransformError
        There are no modules, no shapes or no pairs, or *degree* does not divide a layer.
    """
    if not graph.tasks["module"].notna().any():
        raise TransformError(
            "this trace names no modules, so no layers can be shared; record it with foretrace "
            "record, or torch.profiler's with_stack=True and record_shapes=True"
        )
    tasks = graph.tasks
    root = _linear_above(graph)
    forward = is_in(tasks["phase"], "forward") & ~on_device(graph)
    backward = is_in(tasks["phase"], "backward") & ~on_device(graph)
    mixes = np.isin(task_operator_classes(graph), MIXING)
    inside, grid = np.zeros(len(tasks), bool), np.zeros(len(tasks), bool)
    sums: list[Sum] = []
    names: dict[str, None] = {}
    for step in range(graph.steps):
        rows = np.flatnonzero(forward & (tasks["step"].to_numpy() == step))
        rows = rows[np.argsort(tasks["start_ns"].to_numpy()[rows], kind="stable")]
        for columns, closing in _pairs(_layers(graph, rows, root), mixes[rows]):
            _check_divides(columns, closing, degree)
            names.setdefault(columns[0].module)
            inside[rows[columns[0].first : closing.last + 1]] = True
            grid[rows[columns[0].first : closing.first]] = True
            sums.append(Sum(int(rows[closing.last]), _size(closing, closing.outputs)))
            if backward.any():
                end = _backward_end(graph, backward, columns, step)
                sums.append(Sum(end, _size(columns[0], columns[0].inputs)))
    if not names:
        raise TransformError(
            "nothing to change: no pair of linear layers with known shapes, with something "
            "non-linear between them and back to the width they began with"
        )
    start = tasks["start_ns"].to_numpy()
    ordered = tuple(sorted(sums, key=lambda each: (int(start[each.host]), each.host)))
    inside, grid = _add_launched(graph, inside), _add_launched(graph, grid)
    return SharedLayers(_shares(graph, inside), grid, ordered, tuple(names))


def _linear_above(graph: Graph) -> Rows:
    """Return, per operator, the outermost one at or above it that multiplies by a weight, or −1."""
    operators = graph.operators
    named = by_category(operators["name"], lambda name: name.rsplit("::", 1)[-1] in LINEAR)
    parents, shapes = operators["parent"].tolist(), operators["shapes"]
    root: list[int] = []
    for row, (parent, is_linear) in enumerate(zip(parents, named.tolist(), strict=True)):
        above = root[parent] if 0 <= parent < row else -1
        root.append(above if above >= 0 else row if is_linear and _sizes(shapes.iat[row]) else -1)
    return np.array([*root, -1], np.int64)


def _sizes(text: object) -> tuple[int, int, int] | None:
    """Return samples, inputs, outputs of a product with a weight; None where it is none.

    >>> _sizes("[[64],[8,16],[16,64]]"), _sizes("[[2,4,16],[64,16],[64]]")
    ((8, 16, 64), (8, 16, 64))
    """
    shapes = [shape for shape in parse_shapes(text) if shape] if isinstance(text, str) else []
    operands = [shape for shape in shapes if len(shape) >= MATRIX]
    if len(operands) < MATRIX or len(operands[1]) != MATRIX:
        return None
    left, weight = operands[:2]
    if left[-1] not in weight:
        return None
    outputs = weight[1] if weight[0] == left[-1] else weight[0]
    return math.prod(left[:-1]), left[-1], outputs


def _layers(graph: Graph, rows: Rows, root: Rows) -> list[Layer]:
    """Return the linear layers of one step's forward tasks *rows*, in their order."""
    operator = root[graph.tasks["operator"].to_numpy()[rows]]
    modules = graph.tasks["module"].astype(object).to_numpy()[rows]
    layers = []
    for one in dict.fromkeys(operator[operator >= 0].tolist()):
        places = np.flatnonzero(operator == one)
        sizes = _sizes(graph.operators["shapes"].iat[one])
        assert sizes is not None
        width = element_bytes(str(graph.operators["dtypes"].iat[one]))
        module = str(modules[places[0]])
        layers.append(Layer(one, module, *sizes, width, int(places[0]), int(places[-1])))
    return layers


def _pairs(layers: list[Layer], mixes: Mask) -> list[tuple[list[Layer], Layer]]:
    """Return the pairs: layers of one input, then the layer back to its width."""
    pairs: list[tuple[list[Layer], Layer]] = []
    columns: list[Layer] = []
    for layer in layers:
        mixed = bool(columns) and bool(mixes[columns[-1].last + 1 : layer.first].any())
        width = sum(each.outputs for each in columns)
        if mixed and layer.outputs == columns[0].inputs and width % layer.inputs == 0:
            pairs.append((columns, layer))
            columns = []
        elif columns and not mixed and layer.inputs == columns[0].inputs:
            columns = [*columns, layer]
        else:
            columns = [layer]
    return pairs


def _check_divides(columns: list[Layer], closing: Layer, degree: int) -> None:
    sizes = [(each.module, each.outputs) for each in columns] + [(closing.module, closing.inputs)]
    for module, size in sizes:
        if size % degree:
            raise TransformError(
                f"degree={degree} does not divide the {size} features of {module!r}"
            )


def _size(layer: Layer, features: int) -> int:
    return layer.samples * features * layer.width


def _backward_end(graph: Graph, backward: Mask, columns: list[Layer], step: int) -> int:
    """Return the host task with which the first layers' backward pass ends."""
    tasks = graph.tasks
    where = backward & is_in(tasks["module"], *(each.module for each in columns))
    rows = np.flatnonzero(where & (tasks["step"].to_numpy() == step))
    if not len(rows):
        raise TransformError(f"no backward task of {columns[0].module!r} is known in this trace")
    return int(rows[np.argmax(tasks["start_ns"].to_numpy()[rows])])


def _add_launched(graph: Graph, where: Mask) -> Mask:
    """Add what the selected calls launched."""
    by = launch_edges(graph)
    wide = where.copy()
    wide[by >= 0] |= where[graph.edges["src"].to_numpy()[by[by >= 0]]]
    return wide


def _shares(graph: Graph, inside: Mask) -> npt.NDArray[np.float64]:
    """Return the share of each task that is inside: backward that of its module's forward tasks."""
    tasks = graph.tasks
    computes = on_device(graph) if has_device(graph) else ~on_device(graph)
    module = tasks["module"].cat.codes.to_numpy().astype(np.int64)
    counts = computes & is_in(tasks["phase"], "forward") & (module >= 0)
    work = tasks["work_ns"].to_numpy().astype(np.float64)
    size = int(module.max()) + 1
    every = np.bincount(module[counts], weights=work[counts], minlength=size)
    shared = counts & inside
    part = np.bincount(module[shared], weights=work[shared], minlength=size)
    of_module = np.append(part / np.maximum(every, 1), 0.0)
    share = np.where(is_in(tasks["phase"], "backward"), of_module[module], inside.astype(float))
    return np.where(computes, share, 0.0)
