"""What the profiler itself cost, taken out of host tasks and gaps (design 4.10).

In: the window's recorded period and the step measured without the profiler. Out: one constant per
piece of host time, fitted so that the pieces together lose exactly the difference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foretrace.graph.assemble import Parts, Selection
    from foretrace.tracer.trace import TraceMeta

LEAST_NS, MOST_NS = 100.0, 1_500.0  # per piece: an event has two boundaries and costs 0.2-3 us
NOISE = 0.003                       # differences below this share of the step are noise
TRIM = 0.2


@dataclass(frozen=True)
class Overhead:
    """Profiler cost per self-time segment and per gap between two of them, in ns."""

    per_segment_ns: float


def trimmed_mean(samples: NDArray[np.float64] | tuple[int, ...]) -> float:
    """Mean of *samples* without the lowest and highest fifth.

    >>> trimmed_mean((1, 10, 11, 12, 1000))
    11.0
    """
    ordered = np.sort(np.asarray(samples, np.float64))
    cut = int(len(ordered) * TRIM)
    return float(ordered[cut : len(ordered) - cut].mean())


def host_overhead(parts: Parts, chosen: Selection, meta: TraceMeta) -> Overhead | None:
    """Fit the profiler's cost per piece; ``None`` when unknown, within noise or off the host."""
    if not meta.unprofiled_step_ns or not len(chosen.host):
        return None
    window = parts.window
    excess = window.host_ns - trimmed_mean(meta.unprofiled_step_ns)
    if excess < NOISE * window.host_ns or window.measured_ns > window.host_ns:
        return None
    on_main = chosen.host[parts.host.thread[chosen.host] == parts.threads.main]
    work = parts.waits.work_ns[on_main]
    gap = np.clip(parts.host.start_ns[on_main[1:]] - parts.host.end_ns[on_main[:-1]], 0, None)
    pieces = np.sort(np.concatenate([work, gap]).astype(np.float64))
    pieces = pieces[pieces > 0]
    return Overhead(float(np.clip(_level(pieces, excess * window.steps), LEAST_NS, MOST_NS)))


def _level(pieces: NDArray[np.float64], total: float) -> float:
    """Find the level p with sum(min(piece, p)) = total, for sorted *pieces*.

    >>> _level(np.array([1.0, 5.0, 9.0]), 7.0)
    3.0
    """
    below = np.concatenate([[0.0], np.cumsum(pieces)])
    count = len(pieces)
    for taken in range(count):
        level = (total - below[taken]) / (count - taken)
        if level <= pieces[taken]:
            return float(level)
    return MOST_NS
