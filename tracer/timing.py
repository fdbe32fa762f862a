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
