"""What every way of training over a network gives: steps to run, a clock, what it must send."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.shaped_network.models import ForwardClock


def _nothing() -> dict[str, Any]:
    return {}


@dataclass
class RankTraining:
    """Steps of one rank of a distributed job.

    ``sent_bytes`` is what this rank sends per step by the scheme's formula, ``None`` where there is
    none. ``facts`` says what else is known once steps have run. ``serve`` stands for the steps of a
    server: it is told how many each worker makes. Without ``in_step``, ranks do not wait for each
    other.
    """

    step: Callable[[], None]
    clock: ForwardClock | None = None
    sent_bytes: int | None = None
    facts: Callable[[], dict[str, Any]] = _nothing
    serve: Callable[[Sequence[int]], None] | None = None
    in_step: bool = True

    def run(self, counts: Sequence[int], rank: int) -> tuple[list[int], list[int]]:
        """Run ``counts[rank]`` steps; return the time of each and of its forward, in ns."""
        if self.serve is not None:
            self.serve(counts)
            return [], []
        return time_steps(self.step, self.clock, counts[rank])

    def expected_bytes(self, counts: Sequence[int], rank: int) -> int | None:
        """Return what this rank sends in such a run."""
        if self.sent_bytes is None:
            return None
        return self.sent_bytes * (sum(counts) if self.serve is not None else counts[rank])


def time_steps(
    step: Callable[[], None], clock: ForwardClock | None, count: int
) -> tuple[list[int], list[int]]:
    """Run *step* *count* times; return the time of each and, by *clock*, of its forward, in ns."""
    steps, forwards = [], []
    if clock is not None:
        clock.take()
    for _ in range(count):
        began = time.perf_counter_ns()
        step()
        steps.append(time.perf_counter_ns() - began)
        if clock is not None:
            forwards.append(clock.take())
    return steps, forwards
