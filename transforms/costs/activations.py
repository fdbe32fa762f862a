"""What the forward pass keeps for the backward pass: which tensors, how large, who needs them.

In: a graph. Out: one entry per tensor and step. Sizes come from operator shapes; where there are
none, from the time that the memory-bound kernel before took to write the tensor.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foretrace.transforms.costs.devices import hardware
from foretrace.transforms.costs.kernel_names import classes, kernel_class
from foretrace.transforms.costs.operators import operator_class, parse_shapes
from foretrace.transforms.costs.optimizer_traffic import memory_passes
from foretrace.transforms.costs.rules import STREAMING
from foretrace.transforms.edit.columns import Mask, Rows, is_in, matches, of_category
from foretrace.transforms.edit.select import has_device, task_before

if TYPE_CHECKING:
    import numpy.typing as npt

    from foretrace.graph.model import Graph

    Floats = npt.NDArray[np.float64]

KEEPING = ("conv", "gemm", "attention", "norm", "batch_norm", "softmax", "pool")
"""Operators that keep an input for backward. A ReLU's output is the next one's input."""
MEMORY_BOUND = (
    "pointwise",
    "reduce",
    "norm",
    "batch_norm",
    "copy",
    "layout",
    "softmax",
    "quantize",
)
NORM_PASSES = 3
"""A norm reads its input twice and writes as much."""
POOL = re.compile(r"(?i)max_?pool")
BATCH_NORM = re.compile(r"(?i)(batch|instance)_?norm|(^|[\W_])bn_")
"""Norms that take what they are given in 16 bits, as others do not."""
INDICES = 1.5
"""Max pooling keeps its input and an 8-byte index per output, of which there are a quarter."""
ATTENTION_TENSORS = 4
"""Query, key, value and output."""
BYTES = {"double": 8, "long": 8, "c10::Half": 2, "c10::BFloat16": 2, "bfloat16": 2, "half": 2}
WIDE = 4


@dataclass(frozen=True)
class Activations:
    """Tensors that live from forward to backward: one entry per tensor and step.

    ``forward`` is the task that keeps it, ``backward`` the first that needs it (−1: none),
    ``writer`` the kernel whose output it is (−1: unknown); ``kind`` is one of `KEEPING`; ``size``
    is in bytes. ``from_shapes`` tells which sizes follow
    from operator shapes; the others were estimated from times.
    """

    forward: Rows
    backward: Rows
    writer: Rows
    kind: npt.NDArray[np.str_]
    size: Floats
    from_shapes: Mask

    def __len__(self) -> int:
        """Return the number of tensors."""
        return len(self.forward)

    def where(self, chosen: Mask | Rows) -> Activations:
        """Return the chosen ones, in the order of *chosen* where it is rows."""
        return Activations(
            forward=self.forward[chosen],
            backward=self.backward[chosen],
            writer=self.writer[chosen],
            kind=self.kind[chosen],
            size=self.size[chosen],
            from_shapes=self.from_shapes[chosen],
        )


def activations(graph: Graph) -> Activations:
    """Find what *graph* keeps from forward to backward.

    Sizes are NaN where neither shapes nor the device's bandwidth are known.

    Examples
    --------
    >>> from foretrace.graph.literal import literal
    >>> graph = literal(
    ...     [("sgemm", "kernel", 0, 9, "forward"), ("sgemm", "kernel", 0, 9, "backward")],
    ...     columns={"operator": [0, -1]},
    ...     operators={"name": ["aten::addmm"], "parent": [-1], "shapes": ["[[8],[4,16],[16,8]]"]},
    ... )
    >>> activations(graph).size.tolist(), activations(graph).backward.tolist()
    ([256.0], [1])
    """
    kinds = _kinds(graph)
    tasks = graph.tasks
    work = is_in(tasks["kind"], "kernel" if has_device(graph) else "host")
    keeps = work & np.isin(kinds, KEEPING)
    rows = np.flatnonzero(keeps & is_in(tasks["phase"], "forward"))
    forward = _last_of_operator(graph, rows[~_around(graph, rows, kinds)[rows]])
    writer = _writers(graph, forward)
    size = _from_shapes(graph, forward, kinds[forward])
    from_shapes = np.isfinite(size)
    if not from_shapes.all() and has_device(graph):
        source = np.where(np.isin(kinds[forward], MEMORY_BOUND), forward, writer)
        size = np.where(from_shapes, size, _from_times(graph, source))
    backward = np.flatnonzero(work & is_in(tasks["phase"], "backward"))
    return Activations(
        forward=forward,
        backward=_mirror(graph, forward, backward, kinds),
        writer=writer,
        kind=kinds[forward],
        size=size,
        from_shapes=from_shapes,
    )


def element_bytes(dtypes: str) -> int:
    """Return the width of the first type in an operator's list; 4 when there is none.

    Examples
    --------
    >>> element_bytes('["c10::BFloat16",""]'), element_bytes('["float"]')
    (2, 4)
    """
    first = re.search(r'"([^"]+)"', dtypes)
    return BYTES.get(first.group(1), WIDE) if first else WIDE


def _kinds(graph: Graph) -> npt.NDArray[np.str_]:
    """Return each task's class: its operator's where that keeps something, else its kernel's."""
    names = graph.tasks["name"]
    of_kernel = np.where(matches(names, POOL.pattern), "pool", classes(names))
    of_kernel = np.where(matches(names, BATCH_NORM.pattern), "batch_norm", of_kernel)
    operator = graph.tasks["operator"].to_numpy()
    if not len(graph.operators):
        return of_kernel
    each = of_category(graph.operators["name"], _operator_kind, "other")
    own = np.append(each, "other")[operator]
    host = ~is_in(graph.tasks["kind"], "kernel")
    return np.where(np.isin(own, KEEPING) | host, own, np.where(operator >= 0, "other", of_kernel))


def _operator_kind(name: str) -> str:
    if BATCH_NORM.search(name):
        return "batch_norm"
    return "pool" if POOL.search(name) else operator_class(name)


def _around(graph: Graph, rows: Rows, kinds: npt.NDArray[np.str_]) -> Mask:
    """Return the tasks whose operator only calls another of the same kind, such as conv2d."""
    operator = graph.tasks["operator"].to_numpy().astype(np.int64)
    parent = np.append(graph.operators["parent"].to_numpy().astype(np.int64), -1)
    outer = np.zeros(len(kinds), bool)
    for kind in np.unique(kinds[rows]).tolist():
        calls = np.zeros(len(parent), bool)
        above = np.unique(parent[operator[rows[kinds[rows] == kind]]])
        while len(above := above[above >= 0]):
            calls[above] = True
            above = np.unique(parent[above])
        outer |= calls[operator] & (kinds == kind)
    return outer


def _last_of_operator(graph: Graph, rows: Rows) -> Rows:
    """Return the last of *rows* of each operator, and all without one, in order of time."""
    rows = rows[np.argsort(graph.tasks["start_ns"].to_numpy()[rows], kind="stable")]
    operator = graph.tasks["operator"].to_numpy().astype(np.int64)[rows]
    key = np.where(operator >= 0, operator, -1 - np.arange(len(rows)))
    _, last = np.unique(key[::-1], return_index=True)
    return rows[np.sort(len(rows) - 1 - last)]


def _from_shapes(graph: Graph, rows: Rows, kinds: npt.NDArray[np.str_]) -> Floats:
    """Return the bytes kept by the operator of each of *rows*, NaN without shapes."""
    size = np.full(len(rows), np.nan)
    operators = graph.operators
    if not len(operators):
        return size
    shapes, dtypes, names = (operators[c].astype(object) for c in ("shapes", "dtypes", "name"))
    parent = operators["parent"].to_numpy()
    shaped = shapes.notna().to_numpy()
    own = graph.tasks["operator"].to_numpy().astype(np.int64)[rows]
    while (on := (own >= 0) & ~shaped[own]).any():
        own[on] = parent[own[on]]
    for at in np.flatnonzero(own >= 0).tolist():
        row = int(own[at])
        elements = kept_elements(str(names.iat[row]), str(shapes.iat[row]), str(kinds[at]))
        size[at] = elements * element_bytes(str(dtypes.iat[row])) if elements else np.nan
    return size


def kept_elements(name: str, shapes: str, kind: str) -> float:
    """Return how many elements an operator keeps of its inputs (and its output, for attention).

    Examples
    --------
    >>> kept_elements("aten::mm", "[[4,16],[16,8]]", "gemm")
    64.0
    >>> kept_elements("aten::bmm", "[[2,4,16],[2,16,8]]", "gemm")
    384.0
    """
    sizes = [math.prod(shape) for shape in parse_shapes(shapes) if shape]
    if not sizes:
        return 0.0
    if kind == "attention":
        return float(max(sizes)) * ATTENTION_TENSORS
    if kind == "pool":
        return sizes[0] * INDICES
    if "bmm" in name or name.endswith("::matmul"):
        return float(sum(sizes[-2:]))
    adds = name.rsplit("::", 1)[-1].startswith("add") and len(sizes) > 2  # noqa: PLR2004  # bias first
    return float(sizes[1] if adds else sizes[0])


def _writers(graph: Graph, rows: Rows) -> Rows:
    """Return the kernel that wrote what each of *rows* reads; −1 where its window begins.

    Other kernels of the same operator, layout changes and inserted kernels are looked through.
    """
    before = task_before(graph)
    passing = graph.tasks["duration_ns"].to_numpy() == 0
    passing |= classes(graph.tasks["name"]) == "layout"
    operator = graph.tasks["operator"].to_numpy()
    writer, own = before[rows], operator[rows]
    while (
        on := (writer >= 0) & (passing[writer] | ((operator[writer] == own) & (own >= 0)))
    ).any():
        writer[on] = before[writer[on]]
    return writer


def _from_times(graph: Graph, source: Rows) -> Floats:
    """Return what each memory-bound kernel of *source* moved per tensor, as it was recorded."""
    device = hardware(graph)
    gbps = None if device is None else device.memory_gbps
    names, lengths = graph.tasks["name"], graph.tasks["duration_ns"].to_numpy()
    moved = np.where(source >= 0, of_category(names, _tensors_moved, 0)[source], 0)
    if gbps is None or not (moved > 0).any():
        return np.full(len(source), np.nan)
    size = np.where(moved > 0, lengths[source] * gbps * STREAMING / np.maximum(moved, 1), np.nan)
    return np.where(moved > 0, size, np.nanmedian(size))


def _tensors_moved(name: str) -> int:
    """Return how many tensors a memory-bound kernel moves; 0 for others."""
    kind = kernel_class(name)
    if kind in ("norm", "softmax"):
        return NORM_PASSES
    return memory_passes(name) if kind in MEMORY_BOUND else 0


def _mirror(graph: Graph, forward: Rows, backward: Rows, kinds: npt.NDArray[np.str_]) -> Rows:
    """Return the first backward task that needs each tensor: backward runs in reverse order."""
    needed_by = np.full(len(forward), -1, np.int64)
    step = graph.tasks["step"].to_numpy()
    backward = backward[np.argsort(graph.tasks["start_ns"].to_numpy()[backward], kind="stable")]
    for one in np.unique(step[forward]).tolist():
        for kind in np.unique(kinds[forward]).tolist():
            ahead = np.flatnonzero((step[forward] == one) & (kinds[forward] == kind))
            behind = backward[step[backward] == one]
            behind = behind[kinds[behind] == kind] if (kinds[behind] == kind).any() else behind
            if len(ahead) and len(behind):
                place = (len(ahead) - 1 - np.arange(len(ahead))) * len(behind) // len(ahead)
                needed_by[ahead] = behind[place]
    return needed_by
