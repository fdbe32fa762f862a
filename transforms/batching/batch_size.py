"""Another batch size: work that follows the samples grows, the rest stays."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from foretrace.errors import TransformError
from foretrace.graph.state import Doubt
from foretrace.transforms.costs.kernel_names import classes
from foretrace.transforms.costs.operators import (
    activation_shape,
    flops,
    operator_class,
    parse_shapes,
    task_operator_classes,
)
from foretrace.transforms.costs.peak_memory import keep
from foretrace.transforms.costs.rules import HOST_FIXED_NS, floor_ns, machine_rate
from foretrace.transforms.edit.columns import is_in, matches
from foretrace.transforms.edit.parameters import reconcile, whole
from foretrace.transforms.edit.primitives import scale
from foretrace.transforms.edit.provenance import add_doubt, add_note, grow_samples
from foretrace.transforms.edit.select import has_device, require
from foretrace.transforms.measured.apply import apply_measured

if TYPE_CHECKING:
    import numpy.typing as npt

    from foretrace.graph.model import Graph

    Floats = npt.NDArray[np.float64]
    Shape = tuple[int, ...]

MANY_WAVES = 4.0
"""From here on, quantisation of a grid into waves is not worth modelling."""

FIXED_CLASSES = ("collective", "optimizer")
SEQUENCE = 3
"""Dimensions of a tensor of sequences: words come before the samples, or after them."""


def batch_size(graph: Graph, *, n: int, recorded: int | None = None) -> Graph:
    """Train with *n* samples per step and process.

    Parameters
    ----------
    graph
        The job.
    n
        New number of samples.
    recorded
        Samples in the recording; needed where the trace does not say.

    Notes
    -----
    Assumes: work of forward, backward and loading grows in proportion, less a fixed part per
    kernel or operator. A forward kernel that does not fill the device grows by whole waves of its
    grid. Launches, optimizer and collectives stay; the driver's mapping of memory grows. On a CPU
    an operator grows by the roofline: operations with the batch, bytes with its activations but
    not with its weights.
    With a calibration, every operator grows as it was timed at both sizes.
    Unknown: other kernels picked for the new shapes, caches that no longer hold, memory.
    Source: measured pairs on a CPU; NVIDIA's rule of wave quantisation.

    Examples
    --------
    >>> from foretrace.graph.literal import literal
    >>> graph = literal([("relu", "kernel", 0, 52_000, "forward")])
    >>> batch_size(graph, n=64, recorded=32).tasks.work_ns.tolist()
    [102000]
    """
    whole("n", n, 1)
    before = reconcile("recorded", recorded, graph.meta.batch_size, "samples per step")
    if before is None:
        raise TransformError(
            "the trace does not say its batch size; give recorded=..., the samples per step in it"
        )
    ratio = n / before
    if ratio == 1.0:
        return graph
    loaded = _in_proportion(graph, ratio)
    rule = _device(loaded, ratio) if has_device(graph) else _host(loaded, ratio, before)
    changed = apply_measured(loaded, partial(batch_size, n=n), rest=rule) or scale(
        loaded, np.ones(len(rule), bool), rule, cost="roofline"
    )
    meta = replace(graph.meta, batch_size=n)
    changed = grow_samples(keep(replace(changed, meta=meta), ratio), ratio)
    text = f"batch_size: a step is {n} sample{'s' * (n > 1)} instead of {before}"
    return add_doubt(add_note(changed, text), *_doubts(graph, recorded))


def _doubts(graph: Graph, given: int | None) -> list[Doubt]:
    """Say where the recorded products do not work on multiples of the samples *given*."""
    if given is None or given == 1:
        return []
    inputs = _inputs(graph)
    fits = [shape for shape in inputs if any(size % given == 0 for size in shape)]
    if not inputs or len(fits) >= len(inputs) / 2:
        return []
    usual, _ = Counter(shape[0] for shape in inputs).most_common(1)[0]
    text = f"recorded={given} does not fit the recorded shapes, most of which begin with {usual}"
    return [Doubt("recorded-batch", f"batch_size: {text}")]


def _inputs(graph: Graph) -> list[Shape]:
    """Return the dimensions that may count samples of what forward products work on.

    That is the first one, or with sequences the second, too.
    """
    forward = graph.operators[is_in(graph.operators["phase"], "forward")]
    pairs = zip(*(map(str, forward[column]) for column in ("name", "shapes")), strict=True)
    shapes = [activation_shape(*p) for p in pairs if operator_class(p[0]) in ("gemm", "conv")]
    return [shape[: 2 if len(shape) == SEQUENCE else 1] for shape in shapes if shape]


def _in_proportion(graph: Graph, ratio: float) -> Graph:
    """Grow loading, and taking memory from the driver or giving it back, with the samples."""
    tasks = graph.tasks
    where = is_in(tasks["phase"], "load") & is_in(tasks["kind"], "host", "load")
    where |= is_in(tasks["kind"], "load") | matches(tasks["name"], "^(cuda|hip)(Free|Malloc)")
    return scale(graph, where, ratio, cost="prior")


def _device(graph: Graph, ratio: float) -> Floats:
    """Return the growth of each task of a job with a device."""
    tasks = graph.tasks
    work = tasks["work_ns"].to_numpy()
    floor = float(floor_ns(graph))
    fixed = is_in(tasks["phase"], "optimizer")
    fixed |= np.isin(classes(tasks["name"]), FIXED_CLASSES)
    kernels = is_in(tasks["kind"], "kernel") & ~fixed
    require(kernels, graph, "kernel outside the optimizer")
    growth = np.where(_fills_by_batch(graph), _waves(tasks["fill"].to_numpy(), ratio), ratio)
    least = np.minimum(work, floor)
    new = least + (work - least) * growth
    copies = is_in(tasks["kind"], "memcpy", "memset") & ~fixed
    return np.where(kernels | copies, new / np.maximum(work, 1), 1.0)


def _fills_by_batch(graph: Graph) -> npt.NDArray[np.bool_]:
    """Return the kernels whose grid, and not the loop inside, grows with the batch."""
    return is_in(graph.tasks["phase"], "forward") & ~matches(
        graph.tasks["name"], "(?i)wgrad|reduce"
    )


def _waves(fill: Floats, ratio: float) -> Floats:
    """Return the growth in whole waves of a grid that occupies *fill* devices at once."""
    filled = np.where(np.isfinite(fill) & (fill > 0), fill, MANY_WAVES)
    whole_waves = np.ceil(filled * ratio) / np.ceil(filled)
    return np.where(filled >= MANY_WAVES, ratio, whole_waves)


def _host(graph: Graph, ratio: float, before: int) -> Floats:
    """Return the growth of each task of a job on the CPU alone."""
    tasks = graph.tasks
    training = ~is_in(tasks["phase"], "optimizer", "load")
    computes = task_operator_classes(graph) != "other"
    growth = _operator_growth(graph, ratio, before)
    where = is_in(tasks["kind"], "host") & training & computes & (growth != 1.0)
    require(where, graph, "operator that works on samples")
    work = tasks["work_ns"].to_numpy()
    least = np.minimum(work, HOST_FIXED_NS)
    new = least + (work - least) * growth
    return np.where(where, new / np.maximum(work, 1), 1.0)


def _operator_growth(graph: Graph, ratio: float, before: int) -> Floats:
    """Return the roofline growth of each task's operator; *ratio* where shapes are unknown."""
    operators = graph.operators
    operator = graph.tasks["operator"].to_numpy()
    if not len(operators):
        return np.full(len(operator), ratio)
    names, shapes = operators["name"], operators["shapes"]
    pair = names.cat.codes.to_numpy().astype(np.int64) * (len(shapes.cat.categories) + 1)
    pair += shapes.cat.codes.to_numpy()
    _, first, of = np.unique(pair, return_index=True, return_inverse=True)
    rule = _Growth(
        ratio,
        before,
        _parameter_shapes(graph),
        machine_rate(graph, "fp32_gflops"),
        machine_rate(graph, "copy_gbps"),
    )
    each = np.array([rule.of(str(names.iloc[i]), shapes.iloc[i]) for i in first])
    return np.where(operator >= 0, each[of][operator], ratio)


def _parameter_shapes(graph: Graph) -> frozenset[Shape]:
    """Return the shapes the optimizer updates, and their transposes."""
    operators = graph.operators
    texts = operators["shapes"][is_in(operators["phase"], "optimizer")].dropna().unique()
    shapes = [shape for text in texts for shape in parse_shapes(str(text)) if shape]
    return frozenset(shapes) | frozenset(shape[::-1] for shape in shapes)


@dataclass(frozen=True)
class _Growth:
    """How operators grow with the batch, by the roofline of the recording machine."""

    ratio: float
    before: int
    parameters: frozenset[Shape]
    gflops: float | None
    gbps: float | None

    def of(self, name: str, text: object) -> float:
        """Return the growth of operator *name* with input shapes *text*."""
        shapes = [shape for shape in parse_shapes(text) if shape] if isinstance(text, str) else []
        if not isinstance(text, str) or not shapes:
            return self.ratio
        sizes = [4.0 * math.prod(shape) for shape in shapes]
        follow = sum(size for size, shape in zip(sizes, shapes, strict=True) if self.follows(shape))
        if not follow:
            return 1.0
        stay = sum(sizes) - follow
        work = flops(name, text)
        if work is None and operator_class(name) == "gemm":
            return self.ratio  # a recurrent layer: its weights stay in the cache from word to word
        if work is None:
            return (follow * self.ratio + stay) / (follow + stay)
        if self.gflops is None or self.gbps is None:
            return self.ratio
        old = max(work / self.gflops, (follow + stay) / self.gbps)
        new = max(work * self.ratio / self.gflops, (follow * self.ratio + stay) / self.gbps)
        return new / old

    def follows(self, shape: Shape) -> bool:
        """Tell whether a tensor of this shape has the samples along its first dimension."""
        samples = shape[0] >= self.before and shape[0] % self.before == 0
        return samples and shape not in self.parameters
