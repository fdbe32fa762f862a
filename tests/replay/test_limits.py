"""Limits that every replay keeps: a queue served in order, the host's bound, the device's bound."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretrace.graph.build import build
from foretrace.replaying.replay import replay
from tests.support.recordings.events import call, kernel, scaled, step_ms, steps, sync, trace

if TYPE_CHECKING:
    from foretrace.tracer.trace import Trace

GAPLESS = ()
"""Of devices that nobody names no gap between kernels is assumed."""
LATENCY, RETURN = 5, 3
"""Call start to kernel start on an idle stream; end of the last kernel to return of the sync."""


def launches(count: int, every: float, length: float) -> Trace:
    """*count* launches, one *every* so many µs, of kernels of one *length*; one device sync."""
    rows = []
    free = 0.0
    for number in range(count):
        begin = max(every * number + LATENCY, free)
        free = begin + length
        rows += [call(every * number, 5, number), kernel(begin, length, number)]
    last = every * (count - 1) + 5
    end = max(last + 5, free + RETURN)
    return trace(steps(3, end, [*rows, sync(last, end)]), devices=GAPLESS)


def test_launch_bound_job_with_slower_kernels() -> None:
    """1,000 launches every 10 µs of kernels of 2 µs; ten times as long they take 20.0 ms.

    Counted from the first call to the return of the sync: 1,000 kernels of 20 µs, and 8 µs of
    launch latency before the first and return after the last.
    """
    recording = launches(1_000, 10, 2)

    assert step_ms(recording) == 10.0
    assert step_ms(recording, 10) == 20.008


def test_device_bound_job_with_faster_kernels() -> None:
    """1,000 launches every 10 µs of kernels of 20 µs; a tenth as long, the host binds: 10.0 ms.

    As recorded it is 20 ms of kernels and the same 8 µs of latency and return.
    """
    recording = launches(1_000, 10, 20)

    assert step_ms(recording) == 20.008
    assert step_ms(recording, 1 / 10) == 10.0


@settings(max_examples=40, deadline=None)
@given(
    every=st.integers(6, 40),
    length=st.integers(1, 80),
    factor=st.floats(0, 20, allow_nan=False),
)
def test_no_factor_beats_host_or_device(every: int, length: int, factor: float) -> None:
    """A step is never shorter than the work of a stream or thread, lags included."""
    graph = scaled(build(launches(20, every, length)), factor)
    timeline = replay(graph)
    order = graph.edges[graph.edges["kind"].isin(["thread", "stream"])]
    lane = graph.tasks["lane"].to_numpy()
    busy = np.bincount(lane, weights=graph.tasks["work_ns"])
    busy += np.bincount(lane[order["src"]], weights=order["lag_ns"], minlength=len(busy))

    assert timeline.period_ns >= busy.max()


@pytest.mark.parametrize("factor", [0.0, 1.0, 3.0])
def test_step_is_the_slowest_lane(factor: float) -> None:
    """Without a sync the period is exactly the larger bound: the host's 200 µs or the kernels'."""
    rows = [call(10 * number, 10, number) for number in range(20)]
    rows += [kernel(10 * number + 5, 8, number) for number in range(20)]
    recording = trace(steps(6, 200, rows), devices=GAPLESS)

    assert step_ms(recording, factor) == max(0.2, 0.16 * factor)
