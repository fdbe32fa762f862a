"""Time a call often enough to see through what disturbs it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE_NS = 20_000_000


def quick_ns(run: Callable[[], object]) -> int:
    """Return what a call of *run* takes when little disturbs it: the first quartile, in ns."""
    run()
    times: list[int] = []
    while len(times) < 5 or sum(times) < PATIENCE_NS:  # noqa: PLR2004 - enough for a quartile
        began = time.perf_counter_ns()
        run()
        times.append(max(time.perf_counter_ns() - began, 1))
        if sum(times) > 5 * PATIENCE_NS:
            break
    return sorted(times)[len(times) // 4]


def watch_core() -> Callable[[], int]:
    """Watch this thread's core; call the result for the ns in which others had it.

    Where the system does not say that the core was taken away, that is 0: waiting by choice counts.
    """
    switches, wall, own = _taken_away(), time.perf_counter_ns(), time.thread_time_ns()

    def away_ns() -> int:
        gone = time.perf_counter_ns() - wall - (time.thread_time_ns() - own)
        return max(gone, 0) if _taken_away() != switches else 0

    return away_ns


def subtract_absence(away_ns: int, length_ns: int) -> int:
    """Return *length_ns* less what others had; all of it, if the core was gone beside it.

    >>> subtract_absence(30, 100), subtract_absence(130, 100)
    (70, 100)
    """
    return length_ns - away_ns if away_ns < length_ns else length_ns


def _taken_away() -> int:
    import resource  # not on Windows

    who = getattr(resource, "RUSAGE_THREAD", None)  # Linux alone knows it by thread
    return 0 if who is None else resource.getrusage(who).ru_nivcsw
