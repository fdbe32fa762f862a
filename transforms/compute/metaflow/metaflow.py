"""Layers substituted as in MetaFlow: siblings merged into one, layers replaced by cheaper ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from foretrace.errors import TransformError
from foretrace.transforms.compute.metaflow.sibling_layers import (
    Group,
    module_siblings,
    operator_siblings,
)
from foretrace.transforms.costs.kernel_names import classes
from foretrace.transforms.costs.operators import task_operator_classes
from foretrace.transforms.costs.rules import floor_ns
from foretrace.transforms.edit.columns import Mask, Rows, is_in
from foretrace.transforms.edit.parameters import positive
from foretrace.transforms.edit.primitives import scale
from foretrace.transforms.edit.provenance import add_note
from foretrace.transforms.edit.remove import remove
from foretrace.transforms.edit.select import has_device, modules_matching

if TYPE_CHECKING:
    import numpy.typing as npt

    from foretrace.graph.model import Graph

AUTO = "auto"
COMPUTE_BOUND = ("gemm", "conv", "attention")


def metaflow(
    graph: Graph,
    *,
    merge: str | None = None,
    replace: str | None = None,
    flops: float = 1.0,
    bytes: float = 1.0,  # noqa: A002  # the field's word; nothing here needs the type
) -> Graph:
    """Merge layers that read the same input, or replace layers by ones of other cost.

    Parameters
    ----------
    graph
        The job.
    merge
        Regular expression for whole parts of module paths: those that match and lie in one module
        become one layer, as in "query|key|value". "auto" takes products that follow one another
        on inputs of one shape, for recordings with shapes but no modules.
    replace
        Regular expression for the modules whose work changes.
    flops, bytes
        How much of their arithmetic and of their data movement the replaced modules keep.

    Notes
    -----
    Assumes: a merged product does the work of all in one kernel. Where the grids are known, those
    that fill the device only together take the waves of all their blocks; else the sum of their
    times less what a kernel costs at least. The others' launches and operators go away. Replaced
    products and convolutions follow *flops*, other kernels *bytes*. The optimizer stays.
    Unknown: another kernel picked for the merged shape; additions of gradients that fall away.
    Source: MetaFlow (MLSys 2019); Daydream (ATC 2020) models it by removing and scaling.

    Examples
    --------
    >>> import pandas as pd
    >>> from foretrace.graph.literal import literal
    >>> paths = pd.Categorical(["block.query", "block.key", "block.out"])
    >>> graph = literal(
    ...     [("sgemm", "kernel", 0, 9_000, "forward")] * 3,
    ...     columns={"module": paths, "fill": [0.25, 0.25, 0.25]},
    ... )
    >>> metaflow(graph, merge="query|key").tasks[["module", "work_ns"]].values.tolist()
    [['block.query', 9000], ['block.out', 9000]]
    """
    positive("flops", flops)
    positive("bytes", bytes)
    if merge is None and replace is None:
        raise TransformError(
            "metaflow needs merge=... or replace=..., a pattern for the modules to change"
        )
    if replace is not None:
        graph = _replace_layers(graph, replace, flops, bytes)
    return graph if merge is None else _merge_siblings(graph, merge)


def _replace_layers(graph: Graph, pattern: str, flops: float, moved: float) -> Graph:
    inside, modules = modules_matching(graph, pattern)
    where = (inside >= 0) & _working(graph)
    factor = np.where(np.isin(_classes(graph), COMPUTE_BOUND), flops, moved)
    text = (
        f"metaflow: {len(modules)} modules keep {flops:g} of their flops, {moved:g} of their bytes"
    )
    return add_note(scale(graph, where, factor, cost="user"), text)


def _merge_siblings(graph: Graph, pattern: str) -> Graph:
    auto = pattern == AUTO
    groups = operator_siblings(graph) if auto else module_siblings(graph, pattern)
    if not groups:
        raise TransformError(
            "nothing to change: no products that follow one another on inputs of one shape "
            "(operator shapes are needed); name the modules in merge=..."
            if auto
            else f"nothing to change: no two modules matching merge={pattern!r} lie in one module"
        )
    working, kinds, floor = _working(graph), _classes(graph), floor_ns(graph)
    factor = np.ones(len(graph.tasks))
    gone = np.zeros(len(graph.tasks), bool)
    for group in groups:
        _merge_group(graph, group, working, kinds, floor, factor)
        for rows in group[1:]:
            gone[rows] = True
    changed = scale(graph, ~gone & working, factor, cost="roofline")
    merged = sum(len(group) for group in groups) / graph.steps
    return add_note(
        remove(changed, gone, gaps="drop"),
        f"metaflow: {merged:.0f} layers per step and pass become {len(groups) / graph.steps:.0f}"
        + ("; inputs of one shape are taken for one input" if auto else ""),
    )


def _merge_group(
    graph: Graph,
    group: Group,
    working: Mask,
    kinds: npt.NDArray[np.str_],
    floor: int,
    factor: npt.NDArray[np.float64],
) -> None:
    """Write into *factor* how much longer the first sibling's tasks take for all of them."""
    work = graph.tasks["work_ns"].to_numpy()
    members = [rows[working[rows]] for rows in group]
    first = members[0]
    alike = all(len(m) == len(first) and (kinds[m] == kinds[first]).all() for m in members)
    if not len(first):
        return
    if not alike:
        total = float(sum(work[m].sum() for m in members))
        factor[first] = total / max(float(work[first].sum()), 1.0)
        return
    for rows in np.stack(members, axis=1):
        factor[rows[0]] = _together_ns(graph, rows, floor) / max(float(work[rows[0]]), 1.0)


def _together_ns(graph: Graph, rows: Rows, floor: int) -> float:
    """Return the time of one kernel that does the work of *rows*."""
    work, fill = (graph.tasks[c].to_numpy()[rows] for c in ("work_ns", "fill"))
    longest, total = float(work.max()), float(work.sum())
    if np.isfinite(fill).all() and fill.sum() > 0:
        alone, together = np.ceil(fill).max(), np.ceil(fill.sum())
        return float(min(max(longest * together / max(alone, 1.0), longest), total))
    return max(longest, total - (len(rows) - 1) * float(min(floor, work.min())))


def _working(graph: Graph) -> Mask:
    """Return the tasks whose time is the layers' work: kernels, or on a CPU host tasks."""
    return is_in(graph.tasks["kind"], "kernel" if has_device(graph) else "host")


def _classes(graph: Graph) -> npt.NDArray[np.str_]:
    if has_device(graph):
        return classes(graph.tasks["name"])
    return task_operator_classes(graph)
