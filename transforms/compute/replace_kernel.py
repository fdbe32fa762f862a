"""Another kernel: those of one name take the time that the user gives."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from foretrace.errors import TransformError
from foretrace.transforms.edit.columns import set_label
from foretrace.transforms.edit.parameters import positive
from foretrace.transforms.edit.primitives import MOST_NS
from foretrace.transforms.edit.provenance import add_note
from foretrace.transforms.edit.select import device_tasks_matching

if TYPE_CHECKING:
    from foretrace.graph.model import Graph


def replace_kernel(graph: Graph, *, pattern: str, duration_us: float) -> Graph:
    """Let every device task whose name matches *pattern* take *duration_us*.

    Parameters
    ----------
    graph
        The job.
    pattern
        Regular expression searched in the names of kernels, copies and collectives.
    duration_us
        Time of each in µs, above 0.

    Notes
    -----
    Assumes: the new kernel is launched as often, from the same place, with nothing around it.
    Unknown: other shapes under the same name, which would take other times.
    Source: the user's own measurement.

    Examples
    --------
    >>> from foretrace.graph.literal import literal
    >>> graph = literal([("sgemm", "kernel", 0, 9_000, None), ("relu", "kernel", 0, 20, None)])
    >>> replace_kernel(graph, pattern="gemm", duration_us=2.5).tasks.work_ns.tolist()
    [2500, 20]
    """
    duration_ns = positive("duration_us", duration_us) * 1_000
    where = device_tasks_matching(graph, pattern)
    if duration_ns > MOST_NS:
        raise TransformError(
            f"duration_us={duration_us!r} is more than 115 days; give a time in us"
        )
    tasks = graph.tasks
    work = np.where(where, round(duration_ns), tasks["work_ns"].to_numpy())
    label = set_label(tasks["cost"], where, "user")
    timed = replace(graph, tasks=tasks.assign(work_ns=work, cost=label))
    return add_note(timed, f"replace_kernel: {int(where.sum())} tasks take {duration_us:g} us each")
