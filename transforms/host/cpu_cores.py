"""Another number of CPU cores: for the threads of a CPU job, or for a GPU job's loader workers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from foretrace.errors import TransformError
from foretrace.graph.model import DEVICE_KINDS
from foretrace.transforms.costs.operators import parse_shapes, task_operator_classes
from foretrace.transforms.edit.columns import is_in
from foretrace.transforms.edit.parameters import reconcile, whole
from foretrace.transforms.edit.primitives import scale
from foretrace.transforms.edit.provenance import add_note
from foretrace.transforms.edit.select import has_device, require

if TYPE_CHECKING:
    import numpy.typing as npt

    from foretrace.graph.model import Graph

COMPUTE = ("gemm", "conv", "attention")
MEMORY = ("pointwise", "norm", "softmax", "reduce", "copy", "embedding", "optimizer")
COMPUTE_SHARE, MEMORY_SHARE = 0.95, 0.8
"""Share of an operator that its threads divide among themselves (prior)."""

GRAIN = 32_768
"""Elements below which PyTorch does not split an element-wise operator (``at::GRAIN_SIZE``)."""

MEMORY_CORES = 4
"""Cores that use up the memory bandwidth (prior): more do not speed up memory-bound operators."""


def cpu_cores(graph: Graph, *, n: int, recorded: int | None = None) -> Graph:
    """Run the job on *n* CPU cores.

    Parameters
    ----------
    graph
        The job.
    n
        Cores after the change; a CPU job uses as many threads.
    recorded
        Threads of a CPU job, or cores of a GPU job's host, in the recording; needed where the
        trace does not say.

    Notes
    -----
    Assumes: on a CPU, products divide 95 % of their time among the threads, memory-bound
    operators 80 % among at most 4, and operators on fewer than 32,768 elements nothing. With a
    GPU, loader workers and training threads slow down alike where they need more processor time
    than there is, and gain nothing from cores beyond that.
    Unknown: hyper-threads, sockets, clocks that fall as cores are used.
    Source: Amdahl's law; PyTorch's grain size; no measured pair.

    Examples
    --------
    >>> from foretrace.graph.literal import literal
    >>> graph = literal([("aten::mm", "host", 0, 1_000, "forward"),
    ...                  ("next", "host", 0, 1_000, "load")])
    >>> cpu_cores(graph, n=2, recorded=1).tasks.work_ns.tolist()
    [525, 1000]
    """
    whole("n", n, 1)
    key = "cores" if has_device(graph) else "threads"
    machine_has = (graph.meta.machine or {}).get(key)
    before = reconcile("recorded", recorded, machine_has, key)
    if not before:
        raise TransformError(f"the trace does not say its number of {key}; give recorded=...")
    if before == n:
        return graph
    changed = (
        _share_cores(graph, int(before), n)
        if key == "cores"
        else _divide_operators(graph, int(before), n)
    )
    machine = {**(graph.meta.machine or {}), key: n, "cores": n}
    return replace(changed, meta=replace(graph.meta, machine=machine))


def _divide_operators(graph: Graph, before: int, after: int) -> Graph:
    """Divide every operator of a CPU job among *after* threads instead of *before*."""
    kinds = task_operator_classes(graph)
    work = is_in(graph.tasks["kind"], "host") & ~is_in(graph.tasks["phase"], "load")
    splits = work & (_elements(graph) >= GRAIN)
    compute, memory = work & np.isin(kinds, COMPUTE), splits & np.isin(kinds, MEMORY)
    require(compute | memory, graph, "operator that threads can divide")
    factor = np.ones(len(kinds))
    factor[compute] = _amdahl(COMPUTE_SHARE, after) / _amdahl(COMPUTE_SHARE, before)
    few = min(after, MEMORY_CORES), min(before, MEMORY_CORES)
    factor[memory] = _amdahl(MEMORY_SHARE, few[0]) / _amdahl(MEMORY_SHARE, few[1])
    return add_note(
        scale(graph, compute | memory, factor, cost="prior"),
        f"cpu_cores: {after} threads instead of {before}, by assumed shares that they divide",
    )


def _amdahl(share: float, threads: int) -> float:
    """Return the time on *threads*, as a part of that on one, if *share* of it is divided."""
    return 1 - share + share / threads


def _elements(graph: Graph) -> npt.NDArray[np.float64]:
    """Return the elements of the largest input of each task's operator; infinite if unknown."""
    operator = graph.tasks["operator"].to_numpy()
    if not len(graph.operators):
        return np.full(len(operator), np.inf)
    shapes = graph.operators["shapes"].cat
    of_text = np.array([*map(_largest, map(str, shapes.categories)), np.inf])
    return np.where(operator >= 0, of_text[shapes.codes.to_numpy()][operator], np.inf)


def _largest(shapes: str) -> float:
    return max((float(np.prod(s)) for s in parse_shapes(shapes) if s), default=np.inf)


def _share_cores(graph: Graph, before: int, after: int) -> Graph:
    """Let the threads and loader workers of a GPU job share *after* cores."""
    loader: dict[str, Any] = dict(graph.meta.loader or {})
    busy = loader.get("cpu_share")
    if loader.get("workers") is None:
        raise TransformError(
            "the trace does not say how many loader workers share the cores; record the job with "
            "foretrace record, and give it its loader"
        )
    workers = int(loader["workers"])
    demand = 1.0 + workers * (1.0 if busy is None else float(busy))
    factor = max(1.0, demand / after) / max(1.0, demand / before)
    text = f"cpu_cores: one training thread and {workers} loader workers on {after} cores"
    if factor == 1.0:
        return add_note(graph, f"{text}: they were not short of cores")
    return add_note(
        scale(graph, ~is_in(graph.tasks["kind"], *DEVICE_KINDS), factor, cost="prior"), text
    )
