"""The truth: the most bytes that torch's CPU allocator hands out in a steady step of a job.

The allocator's own events are summed from before the model is built, so that parameters, states and
batches count; libraries' memory that does not come from it does not.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

from torch.profiler import ProfilerActivity, profile, record_function

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

WARMUP, STEADY = 1, 2
RANGE = "steady steps"


def measure_peak(build_step: Callable[[], Callable[[], object]]) -> int:
    """Return the most bytes held in a steady step of the job that *build_step* builds."""
    gc.collect()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step = build_step()
        for _ in range(WARMUP):
            step()
        with record_function(RANGE):
            for _ in range(STEADY):
                step()
    return _peak(profiler.profiler.kineto_results.events())


def _peak(events: Iterable[Any]) -> int:
    """Return the highest level within the range of the steady steps."""
    changes, steady = [], (0, 0)
    for event in events:
        if event.name() == "[memory]":
            changes.append((event.start_ns(), event.nbytes()))
        elif event.name() == RANGE:
            steady = (event.start_ns(), event.end_ns())
    level = peak = 0
    for time, change in sorted(changes, key=lambda each: each[0]):
        level += change
        if steady[0] <= time <= steady[1]:
            peak = max(peak, level)
    return peak
