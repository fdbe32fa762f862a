"""What the profiler itself cost, taken out of host tasks and gaps (design 4.10).

In: the window's recorded period and the step measured without the profiler. Out: one constant per
piece of host time, fitted so that the pieces together lose exactly the difference. Where the
recorder also timed the optimizer without the profiler, its pieces have a constant of their own:
an update's many small operators cost the profiler less than those that autograd follows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foretrace.tracer.recording.optimizer_timer import OPTIMIZER_TIMES
from foretrace.tracer.step_stats import trimmed_mean

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foretrace.graph.assemble.selection import Selection
    from foretrace.graph.infer.rank import InferredRank
    from foretrace.graph.model import Rules
    from foretrace.tracer.trace import TraceMeta

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]
    Times = NDArray[np.float64]

MOST_PER_EVENT_NS = 3_000.0
"""An event costs 0.2 to 3 us under the profiler; more than that has another cause."""
NOISE = 0.003
"""Differences below this share of the step are noise."""
_UPDATE = re.compile(r"^Optimizer\.step")


@dataclass(frozen=True)
class Overhead:
    """The profiler's cost per self-time segment and per gap between two of them, in ns.

    ``in_optimizer`` tells for each host task of the recording whether it is part of an update.
    """

    usual_ns: float
    optimizer_ns: float
    in_optimizer: Flags

    def of(self, rows: Ints) -> Times:
        """Return the cost of each of *rows*, host tasks, and of the gap before it."""
        return np.where(self.in_optimizer[rows], self.optimizer_ns, self.usual_ns)


def fit_overhead(rank: InferredRank, chosen: Selection, meta: TraceMeta, rules: Rules) -> Overhead:
    """Fit what the profiler cost.

    It is 0 where it is unknown, within noise, or where the device sets the pace.
    """
    window, nowhere = rank.window, np.zeros(len(rank.host), bool)
    if not rules.deflate or not meta.unprofiled_step_ns or not len(chosen.host):
        return Overhead(0.0, 0.0, nowhere)
    excess = window.host_ns - trimmed_mean(meta.unprofiled_step_ns)
    if excess < NOISE * window.host_ns or window.measured_ns > window.host_ns:
        return Overhead(0.0, 0.0, nowhere)
    on_main = chosen.host[rank.host.thread[chosen.host] == rank.threads.main]
    updates, update_ns = _find_updates(rank)
    unprofiled_ns = meta.extra.get(OPTIMIZER_TIMES)
    if not unprofiled_ns or not updates[on_main].any():
        level = _fit(rank, on_main, ~nowhere, excess)
        return Overhead(level, level, nowhere)
    of_updates = min(max(update_ns - trimmed_mean(unprofiled_ns), 0.0), excess)
    usual = _fit(rank, on_main, ~updates, excess - of_updates)
    return Overhead(usual, _fit(rank, on_main, updates, of_updates), updates)


def _find_updates(rank: InferredRank) -> tuple[Flags, float]:
    """Return which host tasks are part of an update, and what updates took per recorded step."""
    events, host, window = rank.events, rank.host, rank.window
    ranges = np.flatnonzero(events.is_kind("annotation", "op") & events.named(_UPDATE))
    begin, length = events.start_ns[ranges], events.duration_ns[ranges]
    inside = (begin >= window.start_ns) & (begin < window.end_ns)
    begin, end = begin[inside], (begin + length)[inside]
    in_update = np.zeros(len(host), bool)
    for first, last in zip(begin, end, strict=True):
        in_update |= (host.start_ns >= first) & (host.start_ns < last)
    return in_update, float((end - begin).sum()) / window.steps


def _fit(rank: InferredRank, rows: Ints, among: Flags, excess: float) -> float:
    """Return the level that takes *excess* per step out of the pieces *among* the tasks *rows*."""
    host = rank.host
    gap = np.clip(host.start_ns[rows[1:]] - host.end_ns[rows[:-1]], 0, None)
    chosen = rows[among[rows]]
    pieces = np.concatenate([rank.waits.work_ns[chosen], gap[among[rows[1:]]]])
    pieces = np.sort(pieces[pieces > 0]).astype(np.float64)
    events = len(np.unique(host.event[chosen]))
    return _find_level(pieces, min(excess * rank.window.steps, MOST_PER_EVENT_NS * events))


def _find_level(pieces: NDArray[np.float64], total: float) -> float:
    """Find the level p with sum(min(piece, p)) = total, for sorted *pieces*.

    >>> _find_level(np.array([1.0, 5.0, 9.0]), 7.0)
    3.0
    """
    below = np.append([0.0], np.cumsum(pieces)[:-1])
    level = (total - below) / np.arange(len(pieces), 0, -1)
    reached = np.flatnonzero(level <= pieces)
    return float(level[reached[0]]) if len(reached) else float(pieces.max(initial=0))
