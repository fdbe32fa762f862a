"""What the profiler itself cost, taken out of host tasks and gaps (design 4.10).

In: the window's recorded period and the step measured without the profiler. Out: one constant per
piece of host time, fitted so that the pieces together lose exactly the difference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foretrace.graph.parts import Parts, Selection
    from foretrace.tracer.trace import TraceMeta

LEAST_NS, MOST_NS = 100.0, 1_500.0
"""Per piece: an event has two boundaries and costs 0.2-3 us."""
NOISE = 0.003
"""Differences below this share of the step are noise."""
TRIM = 0.2


def trimmed_mean(samples: NDArray[np.float64] | tuple[int, ...]) -> float:
    """Mean of *samples* without the lowest and highest fifth.

    >>> trimmed_mean((1, 10, 11, 12, 1000))
    11.0
    """
    ordered = np.sort(np.asarray(samples, np.float64))
    cut = int(len(ordered) * TRIM)
    return float(ordered[cut : len(ordered) - cut].mean())


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
    return float(np.clip(_level(pieces, excess * window.steps), LEAST_NS, MOST_NS))


def _level(pieces: NDArray[np.float64], total: float) -> float:
    """Find the level p with sum(min(piece, p)) = total, for sorted *pieces*.

    >>> _level(np.array([1.0, 5.0, 9.0]), 7.0)
    3.0
    """
    below = np.append([0.0], np.cumsum(pieces)[:-1])
    level = (total - below) / np.arange(len(pieces), 0, -1)
    reached = np.flatnonzero(level <= pieces)
    return float(level[reached[0]]) if len(reached) else MOST_NS
