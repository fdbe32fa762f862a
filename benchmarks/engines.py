"""How many tasks per second the two engines replay, and what 10 million of them take.

    python -m benchmarks.engines [TASKS]

The program is a host thread that launches on two streams, one repetition after another, as a
training step does. Printed are the best of five runs and the goals of the design.
"""

from __future__ import annotations

import resource
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from foretrace.replaying.critical_path import trace_critical_path
from foretrace.replaying.engine.event_driven import run_events
from foretrace.replaying.engine.program import END_START, START_START, Program
from foretrace.replaying.engine.static import run_static
from foretrace.replaying.engine.topological import prepare, sort_moments
from foretrace.replaying.steady_state import find_steady_state

if TYPE_CHECKING:
    from collections.abc import Callable

STATIC_GOAL = 50e6
EVENTS_GOAL = 2e6
MEMORY_GOAL_GIB = 4.0


def training(tasks: int, repetitions: int = 1) -> Program:
    """Return a program in which every second task is a kernel, every tenth on a second stream."""
    row = np.arange(tasks, dtype=np.int32)
    lane = np.where(row % 2 == 0, 0, np.where(row % 10 == 1, 2, 1)).astype(np.int32)
    chains = [row[lane == one] for one in range(3)]
    calls, kernels = row[0::2], row[1::2]
    src = np.concatenate([*chains, calls[: len(kernels)]])
    dst = np.concatenate([*(np.roll(chain, -1) for chain in chains), kernels])
    launches = np.repeat([False, True], [len(src) - len(kernels), len(kernels)])
    by_task = np.argsort(dst, kind="stable")
    return Program(
        work_ns=np.where(lane == 0, 8_000, 6_000 + row % 97).astype(np.int64),
        lane=lane,
        resource=np.full(tasks, -1, np.int32),
        holds=np.zeros(tasks, bool),
        src=src[by_task],
        dst=dst[by_task],
        lag_ns=np.where(launches, 6_000, 1_000)[by_task].astype(np.int64),
        anchor=np.where(launches, START_START, END_START)[by_task].astype(np.int8),
        kind=np.where(launches, 2, 1)[by_task].astype(np.int8),
        shift=(dst <= src)[by_task].astype(np.int32),
        release_ns=np.zeros(tasks, np.int64),
        repetitions=repetitions,
    )


def contended(program: Program) -> Program:
    """Let all kernels share one device, every third holding it."""
    kernel = program.lane > 0
    return replace(
        program,
        resource=np.where(kernel, 0, -1).astype(np.int32),
        holds=kernel & (np.arange(len(kernel)) % 3 == 0),
    )


def best(work: Callable[[], object], runs: int = 5) -> float:
    """Return the shortest time of *runs*, in seconds, after one that compiles."""
    work()
    times = []
    for _ in range(runs):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return min(times)


def rates() -> None:
    """Print tasks per second of both engines."""
    program = training(1_000_000)
    prepared = prepare(program)
    order = sort_moments(prepared)
    shared = prepare(contended(program))
    engines: list[tuple[str, Callable[[], object], float]] = [
        ("static", lambda: run_static(prepared, order), STATIC_GOAL),
        ("event-driven, no resource", lambda: run_events(prepared), EVENTS_GOAL),
        ("event-driven, contended", lambda: run_events(shared), EVENTS_GOAL),
    ]
    for name, work, goal in engines:
        rate = 1_000_000 / best(work)
        print(f"{name:<28} {rate / 1e6:7.1f} M tasks/s, {rate / goal:5.1f} times the goal")
    seconds = best(lambda: sort_moments(prepare(program)))
    print(f"{'preparing and ordering':<28} {1 / seconds:7.1f} M tasks/s")


def large(tasks: int, change: Callable[[Program], Program] | None) -> None:
    """Print what *tasks* unrolled tasks take from program to critical path, and the memory."""

    def lower(repetitions: int) -> Program:
        program = training(tasks // repetitions, repetitions)
        return change(program) if change else program

    begin = time.perf_counter()
    steady = find_steady_state(lower, np.array([False, True, True]))
    trace_critical_path(steady)
    seconds = time.perf_counter() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{tasks:,} tasks, {'event-driven' if change else 'static'}: {seconds:.1f} s,"
        f" peak {peak:.1f} GiB (goal {MEMORY_GOAL_GIB:.0f} GiB), settled: {steady.settled}"
    )


if __name__ == "__main__":
    rates()
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000
    large(count, None)
    large(count, contended)
