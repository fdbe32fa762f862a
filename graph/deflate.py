"""What the profiler itself cost, taken out of host tasks and gaps (design 4.10).

In: the window's recorded period and the step measured without the profiler. Out: one constant per
piece of host time, fitted so that the pieces together lose exactly the difference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from foretrace.tracer.measure import trimmed_mean

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foretrace.graph.parts import Parts, Selection
    from foretrace.tracer.trace import TraceMeta

MOST_PER_EVENT_NS = 3_000.0
"""An event costs 0.2 to 3 us under the profiler; more than that has another cause."""
NOISE = 0.003
"""Differences below this share of the step are noise."""


def host_overhead(parts: Parts, chosen: Selection, meta: TraceMeta) -> float:
    """Fit the profiler's cost per self-time segment and per gap between two of them, in ns.

    It is 0 where it is unknown, within noise, or where the device sets the pace.
    """
    if not meta.unprofiled_step_ns or not len(chosen.host):
        return 0.0
    window = parts.window
    excess = window.host_ns - trimmed_mean(meta.unprofiled_step_ns)
    if excess < NOISE * window.host_ns or window.measured_ns > window.host_ns:
        return 0.0
    on_main = chosen.host[parts.host.thread[chosen.host] == parts.threads.main]
    work = parts.waits.work_ns[on_main]
    gap = np.clip(parts.host.start_ns[on_main[1:]] - parts.host.end_ns[on_main[:-1]], 0, None)
    pieces = np.sort(np.concatenate([work, gap]).astype(np.float64))
    pieces = pieces[pieces > 0]
    events = len(np.unique(parts.host.event[on_main]))
    return _level(pieces, min(excess * window.steps, MOST_PER_EVENT_NS * events))


def _level(pieces: NDArray[np.float64], total: float) -> float:
    """Find the level p with sum(min(piece, p)) = total, for sorted *pieces*.

    >>> _level(np.array([1.0, 5.0, 9.0]), 7.0)
    3.0
    """
    below = np.append([0.0], np.cumsum(pieces)[:-1])
    level = (total - below) / np.arange(len(pieces), 0, -1)
    reached = np.flatnonzero(level <= pieces)
    return float(level[reached[0]]) if len(reached) else float(pieces.max(initial=0))
