"""Waits for the event of an earlier step hold in the window's first steps as well."""

from __future__ import annotations

import pytest

from foretrace.graph.build import build
from tests.support.recordings.events import Row, call, kernel, note, step_ms, sync, trace

STEP, KERNELS = 400, 4


def throttled(count: int) -> list[Row]:
    """*count* steps of four kernels of 99 µs; each waits for the event of the step before.

    Its own kernels are queued by then: the host is up to a step ahead, and no more.
    """
    rows: list[Row] = []
    for step in range(-1, count):
        at, first = STEP * step, 10 * (step + 1)
        rows += [kernel(at + 350 + 100 * n, 99, first + n) for n in range(KERNELS)]
        if step < 0:
            continue
        rows += [note(f"ProfilerStep#{step}", at, STEP - 1)]
        rows += [call(at + 10 * n + 1, 5, first + n) for n in range(KERNELS)]
        rows += [sync(at + 60, at + 353, name="cudaEventSynchronize")]
        rows += [call(at + 354, 2, first + 8, name="cudaEventRecord")]
    return rows


def test_first_step_waits_for_the_last_of_the_repetition_before() -> None:
    """Two steps lie between four markers but for the warm-up; the first waits over the seam."""
    edges = build(trace(throttled(4))).edges
    events = edges[(edges["kind"] == "return") & (edges["rule"] == "event")]

    assert sorted(events["shift"]) == [0, 1]


@pytest.mark.parametrize("count", [2, 3, 4])
def test_faster_kernels_speed_up_a_throttled_loop(count: int) -> None:
    """Kernels of 33 µs: 4 x 34. Before, the device takes 4 x 100."""
    recording = trace(throttled(count))

    assert step_ms(recording) == pytest.approx(0.4, abs=0.004)
    assert step_ms(recording, 1 / 3) == pytest.approx(0.136, abs=0.004)
