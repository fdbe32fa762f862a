"""The truth: what a plain process allocates at its peak, for a job and its changed forms.

Nothing of Foretrace is imported. Standard input has a job of `benchmarks.truth` as JSON; the last
line of standard output has, per side, the most bytes that torch's CPU allocator held in two steady
steps. The allocator's own events are summed from before the model is built, so that parameters,
states and batches count; libraries' memory that does not come from it does not.
"""

from __future__ import annotations

import gc
import json
import sys
import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from benchmarks.truth.spec import DrawnJob, Side, from_json, sides_of
from benchmarks.truth.training import build, preload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

MEASURED = (
    *("base", "batch_size", "amp", "gradient_accumulation"),
    *("fused_optimizer", "activation_checkpoint"),
)
"""Sides whose memory is asked for."""
WARMUP, STEADY = 1, 2
RANGE = "steady steps"


def main() -> None:
    """Measure every side of the job that standard input names."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    job = from_json(sys.stdin.read())
    preload(job)
    peaks = {side.name: peak_of(job, side) for side in sides_of(job) if side.name in MEASURED}
    sys.stdout.write("\n" + json.dumps(peaks) + "\n")


def peak_of(job: DrawnJob, side: Side) -> int | None:
    """Return the most bytes that *job*, trained as *side* says, holds in a steady step."""
    try:
        return measure_peak(lambda: build(job, side).run())
    except RuntimeError as error:
        sys.stderr.write(f"{job.name} {side.name}: {error}\n")
        return None


def measure_peak(build_step: Callable[[], Callable[[], None]]) -> int:
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


if __name__ == "__main__":
    main()
