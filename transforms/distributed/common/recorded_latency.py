"""Recorded collectives in, what of their time no bandwidth changes out: their latency.

The time of a collective is its latency and the time of its bytes. Collectives of several sizes
tell the two apart; where all have about one size, the constants of the library say how much the
latency may be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from foretrace.transforms.collectives.nccl import START_SPREAD
from foretrace.transforms.collectives.usual_latency import Latency, gloo_latency, nccl_latency
from foretrace.transforms.edit.columns import is_in
from foretrace.transforms.edit.select import has_device

if TYPE_CHECKING:
    from typing import Any

    import numpy.typing as npt

    from foretrace.graph.model import Graph
    from foretrace.transforms.edit.columns import Mask

    Floats = npt.NDArray[np.float64]

APART = 2.0
"""Sizes that differ by this factor show a line; closer ones show the noise of their times."""


def recorded_latency(graph: Graph, transfers: Mask) -> Latency:
    """Return the latency of the collectives *transfers*: the likely value, and its range.

    The smallest one is all latency but for its bytes, which take no longer than those of any other.
    Where that leaves much open, it takes what is usual for its library (`usual_latency`). Larger
    ones may use another protocol, whose latency differs by `START_SPREAD`. Of a rank alone any may
    have waited for another rank, so that more than is usual is possible, but not likely.

    Examples
    --------
    >>> from foretrace.graph.literal import literal
    >>> tasks = [("ncclAllReduce", "collective", 0, us * 1_000, None) for us in (12, 112)]
    >>> graph = literal(tasks, columns={"bytes": [4e3, 4e6]})
    >>> recorded_latency(graph, np.array([True, True]))
    Latency(least_ns=7800, likely_ns=11900, most_ns=18000)
    """
    usual = nccl_latency(_ranks(graph)) if has_device(graph) else gloo_latency()
    on_link = transfers & is_in(graph.lanes["kind"], "link")[graph.tasks["lane"].to_numpy()]
    meets = bool(on_link.any())
    size, time = _sizes(graph, on_link if meets else transfers, meets=meets)
    most = time.min(initial=np.inf)
    is_sized = len(size) > 0 and size[0] > 0
    least = max(time[0] - size[0] * (time / size).min(), 0.0) if is_sized else 0.0
    low = min(usual.least_ns, most)
    low = max(low, least * (1 - START_SPREAD)) if meets else low
    high = min(max(usual.most_ns, least), most * (1 + START_SPREAD))
    likely = float(usual.likely_ns)
    if is_sized and size[-1] >= APART * size[0]:
        slope = (time[-1] - time[0]) / (size[-1] - size[0])
        likely = time[0] - slope * size[0]
    likely = min(max(likely, low), high, most, np.inf if meets else usual.most_ns)
    return Latency(*(round(ns) for ns in (low, likely, high)))


def _sizes(graph: Graph, transfers: Mask, *, meets: bool) -> tuple[Floats, Floats]:
    """Return the sizes of *transfers*, ascending, and the time that each takes; size 0: unknown.

    Of ranks that meet, the time from the last arrival on; of a rank alone the shortest one, since
    any may have waited for another rank.
    """
    rows = graph.tasks[transfers & (graph.tasks["work_ns"] > 0)]
    of_size = rows["work_ns"].groupby(rows["bytes"].clip(lower=0).fillna(0))
    times: Any = of_size.median() if meets else of_size.min()
    known = times[times.index > 0] if (times.index > 0).any() else times
    return known.index.to_numpy(np.float64), known.to_numpy(np.float64)


def _ranks(graph: Graph) -> int:
    """Return how many ranks take part in the largest group."""
    groups = (graph.state.process_groups or {}).values()
    size = max((group.size for group in groups), default=-1)
    return max(size if size > 0 else graph.meta.world_size or 1, 2)
