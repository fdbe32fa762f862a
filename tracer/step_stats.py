"""Timing: what a block of steps took, how far repeats differ, what disturbed them.

Goes in: times in ns. Comes out: means and spreads in ns, counts per step. Imports nothing heavy.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

TRIM = 0.2
NOISE_LIMIT = 0.02  # above it a pair is inconclusive
SETTLE_PER_WORKER = 4  # steps: twice the batches that a loader worker prefetches
MANY_FAULTS_PER_STEP = 100.0
LITTLE_CPU_PER_WALL = 0.98
SCHEDULED = Path("/proc/thread-self/schedstat")
"""Time on a core, time waiting for one, and turns, of the thread that reads it."""
CORES = Path("/proc/stat")
"""Per core the time that anybody used, in ticks."""
IDLE = (3, 4)
"""Columns of a core that are no use of it: idle, and idle waiting for a disk."""
GUEST = 8
"""From this column on it is told what others hold already."""


def trimmed_mean(values: Sequence[float]) -> float:
    """Return the mean of *values* without the lowest and the highest fifth.

    On a quiet machine it repeats better than the median, and much better than the minimum.

    >>> trimmed_mean([1, 10, 11, 12, 90])
    11.0
    """
    ordered = sorted(values)
    cut = int(TRIM * len(ordered))
    kept = ordered[cut : len(ordered) - cut]
    return sum(kept) / len(kept)


def drift(values: Sequence[float]) -> float:
    """Return by which share the second half of a series differs from the first.

    >>> drift([10, 10, 11, 11]), drift([7])
    (0.1, 0.0)
    """
    if len(values) < 2:  # noqa: PLR2004 - one value cannot drift
        return 0.0
    half = len(values) // 2
    return round(abs(trimmed_mean(values[half:]) / trimmed_mean(values[:half]) - 1), 6)


def neighbours_ratio(before: Sequence[float], after: Sequence[float]) -> tuple[float, float]:
    """Return what *after* is of *before*, and the share by which that drifts between halves.

    Entry by entry the two were measured side by side: a machine that is slow for a while is slow
    for both.

    >>> neighbours_ratio([10, 10, 20, 20], [5, 5, 10, 10])
    (0.5, 0.0)
    >>> neighbours_ratio([10, 10, 10, 10], [10, 10, 11, 11])
    (1.05, 0.1)
    """
    ratios = [new / old for old, new in zip(before, after, strict=True)]
    return trimmed_mean(ratios), drift(ratios)


@dataclass
class Quality:
    """What disturbed the unprofiled steps, summed over blocks of this process."""

    steps: int = 0
    wall_ns: int = 0
    cpu_ns: int = 0
    faults: int = 0
    switches: int = 0
    delayed_ns: int = 0
    others_ns: int = 0

    def block(self) -> Callable[[int], None]:
        """Start counting; call the result with the number of steps when they are over."""
        usage, cpu, wall = _usage(), time.process_time_ns(), time.perf_counter_ns()
        delayed, others = _delayed_ns(), others_ns()

        def over(steps: int) -> None:
            self.wall_ns += time.perf_counter_ns() - wall
            self.cpu_ns += time.process_time_ns() - cpu
            self.delayed_ns += _delayed_ns() - delayed
            self.others_ns += max(others_ns() - others, 0)
            faults, switches = _usage()
            self.faults += faults - usage[0]
            self.switches += switches - usage[1]
            self.steps += steps

        return over

    def summary(self) -> dict[str, float]:
        """Return faults and involuntary switches per step, CPU time and delays per wall time."""
        steps, wall = max(self.steps, 1), max(self.wall_ns, 1)
        return {
            "steps": self.steps,
            "minor_faults_per_step": round(self.faults / steps, 1),
            "involuntary_switches_per_step": round(self.switches / steps, 2),
            "cpu_per_wall": round(self.cpu_ns / wall, 4),
            "delayed_per_wall": round(self.delayed_ns / wall, 4),
            "others_per_wall": round(self.others_ns / wall / _count_cores(), 4),
        }

    def warnings(
        self, *, computes_only: bool, fits: bool = True, is_whole: bool = True
    ) -> dict[str, int]:
        """Return what makes the times doubtful, by name; none on a quiet machine.

        Waiting for a GPU or for loader workers is no disturbance: CPU time is judged where the job
        *computes_only*. Of others it is one that the thread was ready to run and had no core, if
        all processes of the job have *fits* of their own; if not, they take cores from each other,
        and what counts is the share of all cores that others had. Where this process and its
        children are not the *is_whole* job, nothing can be told.
        """
        doubts = {}
        summary = self.summary()
        if summary["minor_faults_per_step"] > MANY_FAULTS_PER_STEP:
            doubts["page_faults"] = round(summary["minor_faults_per_step"])
        lost = 1 - summary["cpu_per_wall"] if computes_only else summary["delayed_per_wall"]
        if not computes_only and not fits:
            lost = summary["others_per_wall"] if is_whole else 0.0
        if self.steps and lost > 1 - LITTLE_CPU_PER_WALL:
            doubts["cpu_taken_away"] = round(100 * lost)
        return doubts


def _usage() -> tuple[int, int]:
    import resource  # not on Windows, where recordings can still be analysed

    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_minflt, usage.ru_nivcsw


def _delayed_ns() -> int:
    """Return for how long this thread was ready while others had the cores (Linux), in ns."""
    try:
        return int(SCHEDULED.read_text("ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def _count_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def others_ns() -> int:
    """Return how long others than this process and its children had its cores (Linux), in ns."""
    try:
        lines = CORES.read_text("ascii").splitlines()
        ours = sum(os.times()[:4]) + sum(map(_seconds_of, _descendants(os.getpid())))
        cores = {f"cpu{core}" for core in os.sched_getaffinity(0)}
        used = 0
        for name, *ticks in map(str.split, lines):
            if name in cores:
                used += sum(int(t) for at, t in enumerate(ticks[:GUEST]) if at not in IDLE)
        return round(1e9 * (used / os.sysconf("SC_CLK_TCK") - ours))
    except (OSError, ValueError, IndexError, AttributeError):
        return 0


def _descendants(process: int) -> Iterator[int]:
    """Yield the living children of *process*, and theirs."""
    for thread in Path(f"/proc/{process}/task").iterdir():
        for child in (thread / "children").read_text("ascii").split():
            yield int(child)
            yield from _descendants(int(child))


def _seconds_of(process: int) -> float:
    """Return the CPU time of a living *process*, in s."""
    fields = Path(f"/proc/{process}/stat").read_text("ascii", errors="replace").rpartition(")")[2]
    user, system = fields.split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
