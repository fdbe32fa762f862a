"""A faster host: calls, operators and the time between them shrink."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.graph.model import DEVICE_KINDS
from foretrace.transforms.edit.columns import is_in
from foretrace.transforms.edit.parameters import positive
from foretrace.transforms.edit.primitives import scale, scale_lags
from foretrace.transforms.edit.provenance import add_note
from foretrace.transforms.edit.select import require

if TYPE_CHECKING:
    from foretrace.graph.model import Graph


def faster_host(graph: Graph, *, speedup: float) -> Graph:
    """Run everything on the host *speedup* times as fast, untraced time included.

    Parameters
    ----------
    graph
        The job.
    speedup
        Above 0; below 1 is slower.

    Notes
    -----
    Assumes: calls, operators and the time between them speed up alike; loader threads too.
    Unknown: how much of it waits for memory or disk, which a faster core does not shorten. Where
    threads or copies compete (driver lock, copy engine), another one may come first than did.
    Source: the user's own figure.

    Examples
    --------
    >>> from foretrace.graph.literal import literal
    >>> graph = literal([("a", "host", 0, 10, None), ("b", "host", 0, 20, None)], lag_ns=4)
    >>> faster = faster_host(graph, speedup=2)
    >>> faster.tasks.work_ns.tolist(), faster.edges.lag_ns.tolist()
    ([5, 10], [2])
    """
    factor = 1 / positive("speedup", speedup)
    where = require(~is_in(graph.tasks["kind"], *DEVICE_KINDS), graph, "host task")
    graph = scale(graph, where, factor, cost="user")
    changed = scale_lags(graph, is_in(graph.edges["kind"], "thread", "fork", "join"), factor)
    return add_note(
        changed, f"faster_host: all host time, loading too, runs {speedup:g} times as fast"
    )
