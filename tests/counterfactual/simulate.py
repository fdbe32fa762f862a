"""A program in, what happens in: every call and device task of every step, to the nanosecond.

The host of a rank runs ahead until it needs something that is not known: then another rank runs,
or an engine (of copies, or the SMs) serves the task that could start first. What a sooner event
could still change is thus never decided before it. The same program gives the same run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tests.counterfactual.host import Host
from tests.counterfactual.times import draw_times

if TYPE_CHECKING:
    from tests.counterfactual.device import Meeting
    from tests.counterfactual.program import Program

WARM_UP, MEASURED = 16, 32
"""Steps until queues and prefetched batches have settled, and steps that the period is taken of."""


@dataclass(frozen=True, slots=True)
class Run:
    """What happened: the hosts hold calls, ranges and device tasks of their ranks."""

    program: Program
    hosts: tuple[Host, ...]

    def period_ns(self, first: int = WARM_UP) -> float:
        """Return the mean time from one step's completion to the next, from step *first* on.

        A step is complete when its host part and all device work launched in it are done: a host
        that still runs ahead, into a queue not yet full, does not make steps any faster.
        """
        done = self.completions()
        return (done[-1] - done[first]) / (len(done) - 1 - first)

    def completions(self) -> list[int]:
        """Return when each step was complete on all ranks."""
        done = np.zeros(len(self.hosts[0].ends), np.int64)
        for host in self.hosts:
            done = np.maximum(done, np.asarray(host.ends))
            ends = np.fromiter((task.end for task in host.tasks), np.int64, len(host.tasks))
            steps = np.fromiter((task.step for task in host.tasks), np.int64, len(host.tasks))
            np.maximum.at(done, steps, ends)
        return [int(each) for each in np.maximum.accumulate(done)]


def simulate(
    program: Program, steps: int = WARM_UP + MEASURED + 1, recorded: range = range(0)
) -> Run:
    """Run *program* for *steps* steps; keep calls and ranges of those *recorded*.

    Raises
    ------
    RuntimeError
        If the ranks wait for each other for ever.
    """
    meetings: dict[tuple[int, int], Meeting] = {}
    hosts = tuple(
        Host(program, rank, draw_times(program, rank, steps), meetings)
        for rank in range(program.ranks)
    )
    running = {host: host.run(steps, recorded) for host in hosts}
    while running:
        before = sum(host.correlation + len(host.begins) for host in hosts)
        for host, threads in list(running.items()):
            if next(threads, _OVER) is _OVER:
                del running[host]
        stuck = before == sum(host.correlation + len(host.begins) for host in hosts)
        if running and stuck and not _serve_first(hosts):
            raise RuntimeError("every rank waits for another one")
    while _serve_first(hosts):
        pass
    return Run(program, hosts)


_OVER = object()


def _serve_first(hosts: tuple[Host, ...]) -> bool:
    """Let the engine serve whose first task could start before all others; tell whether any did."""
    waiting = [engine for host in hosts for engine in host.engines.values() if engine.asked]
    if waiting:
        min(waiting, key=lambda engine: engine.asked[0][0]).serve()
    return bool(waiting)
