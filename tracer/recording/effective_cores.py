"""How many cores this machine really gives to processes that run at the same time.

Cores that share execution units, or that other guests of a host use, count for less than one.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from typing import TYPE_CHECKING, Any

from foretrace.tracer.child_process import end_with
from foretrace.tracer.recording.machine_probe import cores

if TYPE_CHECKING:
    from collections.abc import Callable

TURNS = 3
PATIENCE_S = 60.0


def effective_cores(
    processes: int | None = None,
    *,
    seconds: float = 0.5,
    work: Callable[[], object] | None = None,
) -> float:
    """Return how many times as much *processes* get done together as one does alone.

    Parameters
    ----------
    processes
        How many run at the same time; as many as this process has cores by default.
    seconds
        How long each of three measurements of either kind runs.
    work
        What each repeats; arithmetic in Python by default.

    Returns
    -------
    float
        Work per second of all, divided by that of one alone: the median of three interleaved
        measurements.
    """
    count = cores() if processes is None else processes
    if count == 1:
        return 1.0
    repeat = _arithmetic if work is None else work
    ratios = [_rate(count, seconds, repeat) / _rate(1, seconds, repeat) for _ in range(TURNS)]
    return sorted(ratios)[TURNS // 2]


def _rate(count: int, seconds: float, work: Callable[[], object]) -> float:
    """Return calls of *work* per second of *count* processes together."""
    context = multiprocessing.get_context("fork")
    barrier, results = context.Barrier(count), context.Queue()
    running = [
        context.Process(
            target=_spin_with, args=(os.getpid(), barrier, results, seconds, work), daemon=True
        )
        for _ in range(count)
    ]
    for process in running:
        process.start()
    rates = [results.get(timeout=PATIENCE_S + seconds) for _ in running]
    for process in running:
        process.join()
    return float(sum(rates))


def _spin_with(parent: int, *arguments: Any) -> None:  # pragma: no cover - in a process of its own
    end_with(parent)
    _spin(*arguments)


def _spin(barrier: Any, results: Any, seconds: float, work: Callable[[], object]) -> None:
    """Repeat *work* for so many seconds, all processes from the same moment on."""
    work()
    barrier.wait(PATIENCE_S)
    began = time.perf_counter()
    calls = 0
    while time.perf_counter() - began < seconds:
        work()
        calls += 1
    results.put(calls / (time.perf_counter() - began))


def _arithmetic() -> int:
    return sum(i * i for i in range(2000))
