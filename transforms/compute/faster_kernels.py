"""Faster kernels: some device tasks take a fraction of their time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.transforms.edit.parameters import positive
from foretrace.transforms.edit.primitives import scale
from foretrace.transforms.edit.provenance import add_note
from foretrace.transforms.edit.select import device_tasks_matching

if TYPE_CHECKING:
    from foretrace.graph.model import Graph


def faster_kernels(graph: Graph, *, pattern: str = ".*", speedup: float) -> Graph:
    """Run every device task whose name matches *pattern* *speedup* times as fast.

    Parameters
    ----------
    graph
        The job.
    pattern
        Regular expression searched in the names of kernels, copies and collectives.
    speedup
        Above 0; below 1 is slower.

    Notes
    -----
    Assumes: launch cost, gaps between kernels and the number of kernels stay the same.
    Unknown: clock and cache effects of the change.
    Source: the user's own figure.

    Examples
    --------
    >>> from foretrace.graph.literal import literal
    >>> graph = literal([("sgemm", "kernel", 0, 10, None), ("relu", "kernel", 0, 20, None)])
    >>> faster_kernels(graph, pattern="gemm", speedup=2).tasks.work_ns.tolist()
    [5, 20]
    """
    factor = 1 / positive("speedup", speedup)
    where = device_tasks_matching(graph, pattern)
    changed = scale(graph, where, factor, cost="user")
    return add_note(
        changed, f"faster_kernels: tasks matching {pattern!r} run {speedup:g} times as fast"
    )
