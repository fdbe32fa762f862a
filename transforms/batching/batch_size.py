"""Another batch size: work that follows the samples grows, the rest stays."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from foretrace.errors import TransformError
from foretrace.graph.build import build
from foretrace.graph.state import Doubt
from foretrace.tracer.data_issues import disturbances, sentences
from foretrace.tracer.readers.load import load
from foretrace.transforms.batching.growth_on_host import growth_on_host
from foretrace.transforms.batching.two_recordings import grow_towards
from foretrace.transforms.costs.kernel_names import classes
from foretrace.transforms.costs.operators import activation_shape, operator_class
from foretrace.transforms.costs.peak_memory import grow_memory
from foretrace.transforms.costs.rules import floor_ns
from foretrace.transforms.edit.columns import is_in, matches
from foretrace.transforms.edit.parameters import reconcile, whole
from foretrace.transforms.edit.primitives import scale
from foretrace.transforms.edit.provenance import add_doubt, add_note, grow_samples, mark_measured
from foretrace.transforms.edit.select import has_device, require
from foretrace.transforms.measured.apply import apply_measured

if TYPE_CHECKING:
    import numpy.typing as npt

    from foretrace.graph.model import Graph

    Floats = npt.NDArray[np.float64]
    Shape = tuple[int, ...]

MANY_WAVES = 4.0
"""From here on, quantisation of a grid into waves is not worth modelling."""

LONG_STRETCH_NS = 300_000
"""Host time between two operators that is more than calling them: loops of Python."""
LEAST_STRETCHES = 0.03
"""Share of a step below which such stretches do not matter."""

INSIDE_LOOP = "(?i)wgrad|reduce"
"""Kernels that loop over the samples: their grids are those of weights."""
FIXED_CLASSES = ("collective", "optimizer")
SEQUENCE = 3
"""Dimensions of a tensor of sequences: words come before the samples, or after them."""


def batch_size(
    graph: Graph, *, n: int, recorded: int | None = None, other: str | None = None
) -> Graph:
    """Train with *n* samples per step and process.

    Parameters
    ----------
    graph
        The job.
    n
        New number of samples.
    recorded
        Samples in the recording; needed where the trace does not say.
    other
        File of a second recording of this job with another number of samples: what grows, and how
        fast, is read off the two. Better than any rule, on any side of both.

    Notes
    -----
    Assumes: work of forward, backward and loading grows in proportion, less a fixed part per
    kernel or operator. A forward kernel that does not fill the device grows by whole waves of its
    grid. Launches, optimizer and collectives stay; the driver's mapping of memory grows. On a CPU
    an operator grows by the roofline: operations with the batch, bytes with its activations but
    not with its weights.
    With a calibration, every operator grows as it was timed at both sizes.
    Host time between operators stays, and is doubted where it is long.
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
    if other is None:
        changed = _by_rule(graph, n, before)
        changed = add_doubt(changed, *_doubts(graph, recorded), *_doubt_python(graph))
    else:
        second = _build_other(graph, other)
        changed = mark_measured(_towards(graph, n, before, second))
        changed = add_doubt(changed, *_doubt_other(second))
    meta = replace(graph.meta, batch_size=n)
    changed = grow_memory(replace(changed, meta=meta), ratio)
    changed = grow_samples(changed, ratio)
    text = f"batch_size: a step is {n} sample{'s' * (n > 1)} instead of {before}"
    return add_note(changed, text)


def grow_between(small: Graph, large: Graph, at: float) -> Graph:
    """Return *small* with its work a share *at* of the way to that of *large*, recorded as well."""
    least, most = (graph.meta.batch_size or 0 for graph in (small, large))
    samples = round(least + at * (most - least))
    grown = grow_towards(small, large, at, _work_by_rule(small, most, least))
    return replace(grown, meta=replace(small.meta, batch_size=samples))


def _by_rule(graph: Graph, n: int, before: int) -> Graph:
    """Return *graph* grown to *n* samples, as calibrated, or by the rule of its device."""
    ratio = n / before
    loaded = _in_proportion(graph, ratio)
    if has_device(graph):
        loaded, rule = _grow_grids(loaded, ratio), _device(loaded, ratio)
    else:
        rule = growth_on_host(loaded, ratio, before)
    return apply_measured(loaded, partial(batch_size, n=n), rest=rule) or scale(
        loaded, np.ones(len(rule), bool), rule, cost="roofline"
    )


def _work_by_rule(graph: Graph, n: int, before: int) -> npt.NDArray[np.int64]:
    """Return the work of each task with *n* samples, without a calibration: no task is added."""
    grown = _by_rule(graph.with_state(calibration=None), n, before)
    return grown.tasks["work_ns"].to_numpy()


def _towards(graph: Graph, n: int, before: int, other: Graph) -> Graph:
    """Return *graph* on the line to *other*, which was recorded with another number of samples."""
    there = other.meta.batch_size
    assert there is not None
    at = (n - before) / (there - before)
    return grow_towards(graph, other, at, _work_by_rule(graph, there, before))


def _build_other(graph: Graph, path: str) -> Graph:
    """Return the graph of the second recording.

    Raises
    ------
    TransformError
        It is of another job or another device, or does not say another number of samples.
    """
    other = build(load(path))
    mine, theirs = graph.meta, other.meta
    if theirs.batch_size in (None, mine.batch_size):
        raise TransformError(
            f"other={path!r} must be a recording with another batch size than {mine.batch_size}; "
            f"it says {theirs.batch_size}"
        )
    same = mine.extra.get("parameters") == theirs.extra.get("parameters")
    if not same or has_device(graph) != has_device(other):
        raise TransformError(f"other={path!r} is a recording of another job, or on another device")
    return other


def _doubt_other(other: Graph) -> list[Doubt]:
    """Doubt a line through a recording that others disturbed: what they took looks like growth."""
    told = sentences(disturbances(other.meta.warnings))
    return [Doubt("other-disturbed", f"of other=...: {text}") for text in told]


def _doubt_python(graph: Graph) -> list[Doubt]:
    """Doubt long stretches without any operator: work of Python may grow with the samples."""
    kinds, lag = graph.edges["kind"], graph.edges["lag_ns"].to_numpy()
    spent = lag[is_in(kinds, "thread") & (lag >= LONG_STRETCH_NS)].sum() / graph.steps
    share = float(spent / max(graph.measured_step_ns, 1))
    if has_device(graph) or share < LEAST_STRETCHES:
        return []
    text = (
        f"{spent / 1e6:.2f} ms of a step pass outside of any operator, in stretches of over "
        f"{LONG_STRETCH_NS / 1e6:.1f} ms, and are taken to stay: what Python does per sample "
        "(environments, text) grows; record another batch size and give other=..."
    )
    return [Doubt("python-per-sample", f"batch_size: {text}", share=share)]


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


def _grow_grids(graph: Graph, ratio: float) -> Graph:
    """Return *graph*, whose kernels have more blocks where these follow the samples.

    Gradients of weights sum over the samples inside a block.
    """
    tasks = graph.tasks
    follows = is_in(tasks["phase"], "forward", "backward") & ~matches(tasks["name"], INSIDE_LOOP)
    blocks, fill = (tasks[column].to_numpy() for column in ("blocks", "fill"))
    more = np.where(blocks > 0, np.maximum(np.rint(blocks * ratio), 1), blocks)
    grown = {"blocks": np.where(follows, more, blocks).astype(blocks.dtype)}
    return replace(graph, tasks=tasks.assign(**grown, fill=fill * np.where(follows, ratio, 1.0)))


def _fills_by_batch(graph: Graph) -> npt.NDArray[np.bool_]:
    """Return the kernels whose grid, and not the loop inside, grows with the batch."""
    return is_in(graph.tasks["phase"], "forward") & ~matches(graph.tasks["name"], INSIDE_LOOP)


def _waves(fill: Floats, ratio: float) -> Floats:
    """Return the growth in whole waves of a grid that occupies *fill* devices at once."""
    filled = np.where(np.isfinite(fill) & (fill > 0), fill, MANY_WAVES)
    whole_waves = np.ceil(filled * ratio) / np.ceil(filled)
    return np.where(filled >= MANY_WAVES, ratio, whole_waves)
