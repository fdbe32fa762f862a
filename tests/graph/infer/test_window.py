"""Which steps are kept, and how long they really took."""

from __future__ import annotations

import math

import numpy as np

from foretrace.graph.infer.events import select_events
from foretrace.graph.infer.steps import find_steps
from foretrace.graph.infer.window import StepWindow, choose_window
from tests.support.recordings.events import (
    Row,
    call,
    kernel,
    microseconds,
    note,
    op,
    parsed,
    steps,
    trace,
)


def window(rows: list[Row]) -> StepWindow:
    """Return the window of a recording."""
    found = find_steps(select_events(trace(rows).events))
    _, host, devices = parsed(rows, found.rows if found else ())
    return choose_window(found, host, devices)


def test_first_third_is_warm_up() -> None:
    """Of 7 markers the last bounds the 6th step; steps 2 to 5 are kept."""
    chosen = window(steps(7, 100, [op("aten::mm", 0, 50)]))

    assert (chosen.steps, microseconds([chosen.start_ns, chosen.end_ns])) == (4, [200, 600])
    assert chosen.measured_ns == 100_000
    assert chosen.samples_ns == (100_000,) * 4
    assert math.isnan(chosen.device_ns)


def test_two_steps_are_both_kept() -> None:
    """There is nothing to spare for warm-up."""
    assert window(steps(3, 100, [op("aten::mm", 0, 50)])).steps == 2


def test_device_sets_the_pace_while_the_host_runs_ahead() -> None:
    """The host takes 100 µs a step, its kernels 300: the step time is the device's."""
    rows: list[Row] = []
    for number in range(7):
        rows.append(note(f"ProfilerStep#{number}", 100 * number, 90))
        rows.append(call(100 * number, 5, number))
        rows.append(kernel(300 * number + 10, 300, number))
    chosen = window(rows)

    assert (chosen.host_ns, chosen.device_ns, chosen.measured_ns) == (100_000, 300_000, 300_000)
    assert chosen.samples_ns == (300_000,) * 4
    assert "the host runs ahead of the device" in chosen.notes[0]


def test_steps_that_lost_device_events_are_left_out() -> None:
    """Of 10 steps the 5th has no kernels; the longer run of good ones after it is kept."""
    rows = steps(11, 100, [call(0, 5, 1), kernel(10, 50, 1)])
    lost = [row for row in rows if row["kind"] == "kernel" and 400_000 < row["start_ns"] < 500_000]
    chosen = window([row for row in rows if row not in lost])

    assert len(lost) == 1
    assert chosen.steps == 5
    assert chosen.notes == ("1 of 10 steps have lost device events and are left out",)


def test_recording_without_steps_is_one() -> None:
    """From the first event to the end of the last, on host and device."""
    chosen = window([call(10, 5, 1), kernel(20, 80, 1), op("aten::mm", 30, 10)])

    assert (chosen.steps, chosen.measured_ns) == (1, 80_000)
    assert chosen.notes == ("no steps were found: the whole recording counts as one",)


def test_device_alone_is_one_step() -> None:
    """A recording of the device only has its length."""
    chosen = window([kernel(20, 80, 1), kernel(150, 50, 2)])

    assert (microseconds([chosen.start_ns, chosen.end_ns]), chosen.measured_ns) == (
        [20, 200],
        180_000,
    )


def test_single_step_has_its_own_length() -> None:
    """The only annotation begins and ends it."""
    chosen = window([note("ProfilerStep#1", 0, 100), op("aten::mm", 5, 20)])

    assert (chosen.steps, chosen.measured_ns, np.diff(chosen.starts_ns).tolist()) == (
        1,
        100_000,
        [],
    )
    assert chosen.notes == ("only one step was recorded: its period is its own length",)
