"""How the operators of a CPU job grow with the batch, by their shapes: one factor per task."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foretrace.transforms.costs.operators import (
    flops,
    operator_class,
    parse_shapes,
    task_operator_classes,
)
from foretrace.transforms.costs.rules import HOST_FIXED_NS, machine_rate
from foretrace.transforms.edit.columns import is_in, matches
from foretrace.transforms.edit.select import require

if TYPE_CHECKING:
    import numpy.typing as npt

    from foretrace.graph.model import Graph
    from foretrace.transforms.edit.columns import Mask

    Floats = npt.NDArray[np.float64]
    Shape = tuple[int, ...]


SEQUENCE = 3
"""Dimensions of a tensor of sequences: words may come before the samples."""

SPARSE = r"coalesce|sparse_mask|::_values$"
"""Operators of an update on sparse gradients, which hold the rows that the samples touched."""


def growth_on_host(graph: Graph, ratio: float, before: int) -> Floats:
    """Return the growth of each task of a job on the CPU alone."""
    tasks = graph.tasks
    rule = _Growth.of_graph(graph, ratio, before)
    growth = _operator_growth(graph, rule)
    computes = task_operator_classes(graph) != "other"
    computes |= tasks["operator"].to_numpy() >= 0
    trains = ~is_in(tasks["phase"], "optimizer", "load") & computes
    updates = is_in(tasks["phase"], "optimizer") & bool(rule.sparse)
    where = is_in(tasks["kind"], "host") & (trains | updates) & (growth != 1.0)
    require(where, graph, "operator that works on samples")
    work = tasks["work_ns"].to_numpy()
    least = np.minimum(work, HOST_FIXED_NS)
    new = least + (work - least) * growth
    return np.where(where, new / np.maximum(work, 1), 1.0)


def _operator_growth(graph: Graph, rule: _Growth) -> Floats:
    """Return the growth of each task's operator; the batch's where shapes are unknown."""
    operators = graph.operators
    operator = graph.tasks["operator"].to_numpy()
    if not len(operators):
        return np.full(len(operator), rule.ratio)
    names, shapes = operators["name"], operators["shapes"]
    pair = names.cat.codes.to_numpy().astype(np.int64) * (len(shapes.cat.categories) + 1)
    pair += shapes.cat.codes.to_numpy()
    pair = 2 * pair + is_in(operators["phase"], "optimizer")
    _, first, of = np.unique(pair, return_index=True, return_inverse=True)
    is_update = is_in(operators["phase"], "optimizer")
    each = np.array(
        [
            (rule.of_update if is_update[i] else rule.of)(str(names.iloc[i]), shapes.iloc[i])
            for i in first
        ]
    )
    outside = np.where(is_in(graph.tasks["phase"], "optimizer"), 1.0, rule.ratio)
    return np.where(operator >= 0, each[of][operator], outside)


def _learned_shapes(graph: Graph) -> frozenset[Shape]:
    """Return the shapes of parameters and buffers, as far as the recording lists them."""
    listed = [*_described(graph, "parameters"), *_described(graph, "buffers")]
    return frozenset(shape for shape in listed if shape)


def _described(graph: Graph, name: str) -> list[Shape]:
    described = graph.meta.extra.get(name)
    if not isinstance(described, list):
        return []
    shapes = [entry[1] for entry in described if isinstance(entry, list) and len(entry) > 1]
    return [
        tuple(shape)
        for shape in shapes
        if isinstance(shape, list) and all(type(size) is int for size in shape)
    ]


def _shapes_in(graph: Graph, where: Mask) -> set[Shape]:
    """Return the shapes of the tensors that the operators *where* are given."""
    texts = graph.operators["shapes"][where].dropna().unique()
    return {shape for text in texts for shape in parse_shapes(str(text)) if shape}


def _ragged_rows(inputs: set[Shape], before: int, learned: frozenset[Shape]) -> frozenset[int]:
    """Return numbers of rows of *inputs* that follow the batch and are no multiple of it.

    Such as the samples that are routed to an expert, or words without their padding. A size that
    parameters have, or that tensors of samples have behind their first dimension (words, pixels),
    is none. Without a list of the parameters none can be told.
    """
    if not learned:
        return frozenset()
    fixed = {1, *(size for shape in learned for size in shape)}
    follows = [shape for shape in inputs if not shape[0] % before and shape not in learned]
    fixed.update(size for shape in follows for size in shape[1:])
    rows = {shape[0] for shape in inputs if shape[0] % before and len(shape) > 1}
    return frozenset(rows - fixed)


@dataclass(frozen=True)
class _Growth:
    """How operators grow with the batch, by the roofline of the recording machine."""

    ratio: float
    before: int
    parameters: frozenset[Shape]
    ragged: frozenset[int]
    sparse: frozenset[Shape]
    gflops: float | None
    gbps: float | None

    @classmethod
    def of_graph(cls, graph: Graph, ratio: float, before: int) -> _Growth:
        """Return how the operators of *graph* grow *ratio* times from *before* samples on."""
        learned = _learned_shapes(graph)
        is_update = is_in(graph.operators["phase"], "optimizer")
        is_sparse = is_update & matches(graph.operators["name"], SPARSE)
        trained = is_in(graph.operators["phase"], "forward")
        trained |= is_update & bool(is_sparse.any())
        updated = learned if learned or is_sparse.any() else _shapes_in(graph, is_update)
        with_turned = frozenset(updated) | frozenset(shape[::-1] for shape in updated)
        return cls(
            ratio,
            before,
            with_turned,
            _ragged_rows(_shapes_in(graph, trained), before, with_turned if learned else learned),
            frozenset(_shapes_in(graph, is_sparse)),
            machine_rate(graph, "fp32_gflops"),
            machine_rate(graph, "copy_gbps"),
        )

    def of_update(self, name: str, text: object) -> float:
        """Return the growth of operator *name* of an update: of sparse gradients that of rows."""
        shapes = parse_shapes(text) if isinstance(text, str) else ()
        if any(shape in self.sparse for shape in shapes):
            return self.ratio
        return self.of(name, text) if any(shapes) and self.sparse else 1.0

    def of(self, name: str, text: object) -> float:
        """Return the growth of operator *name* with input shapes *text*."""
        shapes = [shape for shape in parse_shapes(text) if shape] if isinstance(text, str) else []
        if not isinstance(text, str) or not shapes:
            return 1.0 if operator_class(name) == "other" else self.ratio
        sizes = [4.0 * math.prod(shape) for shape in shapes]
        follow = sum(size for size, shape in zip(sizes, shapes, strict=True) if self.follows(shape))
        if not follow:
            return 1.0
        stay = sum(sizes) - follow
        work = flops(name, text)
        if work is None and operator_class(name) in ("gemm", "embedding"):
            return self.ratio  # recurrent layers keep weights in the cache, tables are hardly read
        if work is None:
            return (follow * self.ratio + stay) / (follow + stay)
        if self.gflops is None or self.gbps is None:
            return self.ratio
        old = max(work / self.gflops, (follow + stay) / self.gbps)
        new = max(work * self.ratio / self.gflops, (follow * self.ratio + stay) / self.gbps)
        return new / old

    def follows(self, shape: Shape) -> bool:
        """Tell whether a tensor of this shape has samples, or parts of them, as its rows."""
        is_multiple = shape[0] >= self.before and shape[0] % self.before == 0
        words_first = len(shape) >= SEQUENCE and shape[1] == self.before
        follows = is_multiple or words_first or shape[0] in self.ragged
        return follows and shape not in self.parameters
