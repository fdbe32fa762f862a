"""Which steps are kept, and how long they really took."""

from __future__ import annotations

import math

import numpy as np
import pytest

from foretrace.graph.infer.events import select_events
from foretrace.graph.infer.loading.loader_pace import pace_window
from foretrace.graph.infer.steps.steps import find_steps
from foretrace.graph.infer.steps.window import StepWindow, choose_window
from tests.support.recordings.events import (
    Row,
    call,
    kernel,
    later,
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


@pytest.mark.parametrize(
    ("idle_us", "measured", "doubts"),
    [(10, 302, []), (100, 340, ["outlier-step"])],
    ids=["hardly idle", "idle"],
)
def test_host_that_waits_now_and_then_does_not_set_the_pace(
    idle_us: int, measured: float, doubts: list[str]
) -> None:
    """It takes 100 µs a step and 1,300 in the sixth, which reads a loss; kernels take 300.

    The host has 340 µs on average; a device that is idle meanwhile feels it.
    """
    starts = [0, 100, 200, 300, 400, 500, 1_800, 1_900]
    rows: list[Row] = []
    for number, start in enumerate(starts):
        rows.append(note(f"ProfilerStep#{number}", start, 90))
        rows.append(call(start, 5, number))
        begin = 300 * number + 10 + (idle_us if number >= 5 else 0)
        rows.append(kernel(begin, 300, number))
    chosen = window(rows)

    assert chosen.measured_ns / 1e3 == pytest.approx(measured, rel=1e-4)
    assert [doubt.code for doubt in chosen.doubts] == doubts


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
    assert [doubt.code for doubt in chosen.doubts] == ["no-steps"]


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


def test_pause_in_the_last_step_is_no_pace_of_the_device() -> None:
    """The host pauses for 400 µs, then launches: its device was idle, and is no slower for it."""
    rows: list[Row] = []
    for number in range(7):
        late = 400 if number == 6 else 0
        rows.append(note(f"ProfilerStep#{number}", 100 * number, 90 + late))
        rows.append(call(100 * number + late, 5, number))
        rows.append(kernel(100 * number + late + 10, 60, number))
    chosen = window(rows)

    assert (chosen.measured_ns, chosen.device_ns, chosen.notes) == (100_000, 100_000, ())


def test_one_long_step_is_named() -> None:
    """Of four steps one takes 600 µs for 100: it alone makes the mean."""
    starts = [0, 100, 200, 300, 900, 1000]
    rows: list[Row] = [note(f"ProfilerStep#{i + 7}", at, 90) for i, at in enumerate(starts)]
    chosen = window([*rows, *(op("aten::mm", at, 50) for at in starts)])

    assert [(each.code, each.place) for each in chosen.doubts] == [("outlier-step", "step 10")]


@pytest.mark.parametrize(("warm_up", "doubts"), [(100, ["outlier-step"]), (700, [])])
def test_warm_up_tells_which_of_two_steps_is_the_outlier(warm_up: int, doubts: list[str]) -> None:
    """Steps of 100 and 600 µs are kept; the one before them was as short, or no shorter."""
    starts = np.cumsum([0, warm_up, 100, 600]).tolist()
    rows: list[Row] = [note(f"ProfilerStep#{i}", at, 90) for i, at in enumerate(starts)]
    chosen = window([*rows, *(op("aten::mm", at, 50) for at in starts)])

    assert [doubt.code for doubt in chosen.doubts] == doubts


def test_steps_that_lost_events_are_kept_where_told() -> None:
    """Where every rank lost some of other steps, no step is complete on all of them."""
    rows = [call(5, 5, 1), call(15, 5, 2), kernel(20, 40, 1), kernel(61, 20, 2)]
    every = [row for row in steps(7, 100, rows) if row.get("correlation") != 3 * 4 + 2]
    every.append(call(415, 5, 3 * 4 + 2))
    found = find_steps(select_events(trace(every).events))
    _, host, devices = parsed(every, found.rows if found else ())

    assert choose_window(found, host, devices, (2, 6), 0).kept == (2, 4)
    assert choose_window(found, host, devices, (2, 6), 0, complete_only=False).kept == (2, 6)


def test_guessed_steps_are_doubted() -> None:
    """The doubt names the range and what to pass instead."""
    (doubt,) = window([note("forward", 100 * i, 90) for i in range(6)]).doubts

    assert doubt.code == "steps-guessed"
    assert "'forward'" in doubt.text
    assert "--step" in doubt.text


def test_device_is_compared_with_the_host_of_the_same_steps() -> None:
    """Steps of 200 and 100 µs; after the last marker nothing runs: the device shows one only."""
    rows: list[Row] = []
    for number, at in enumerate((0, 200, 300)):
        rows.append(note(f"ProfilerStep#{number}", at, 90))
        if number < 2:
            rows += [call(at, 5, number), kernel(at + 10, 60, number)]
    chosen = window(rows)

    assert (chosen.measured_ns, chosen.device_ns, chosen.notes) == (150_000, 200_000, ())


def cut_recording(pause: float = 0.0) -> list[Row]:
    """Return nine steps of 20 launches; two kernels of step 7 are lost, step 8 begins late."""
    rows = steps(9, 1_000, [row for n in range(20) for row in work(n)])
    lost = (140, 150)
    kept = [r for r in rows if r["kind"] != "kernel" or r["correlation"] not in lost]
    return [later(row, pause if row["start_ns"] >= 8_000_000 else 0) for row in kept]


def work(number: int) -> list[Row]:
    """Return a launch and its kernel."""
    return [call(10 * number, 5, number), kernel(10 * number + 5, 9, number)]


def test_step_without_all_its_device_work_is_left_out() -> None:
    """Two of 20 kernels of step 7 are missing: a tenth, where other steps lack none."""
    chosen = window(cut_recording())

    assert chosen.kept == (2, 7)
    assert chosen.notes == ("1 of 8 steps have lost device events and are left out",)
    assert chosen.doubts == ()


def test_steps_left_out_that_are_unlike_the_rest_are_doubted() -> None:
    """The one without its work took 3 ms, where the five that are kept take 1."""
    chosen = window(cut_recording(pause=2_000))

    assert chosen.kept == (2, 7)
    assert [doubt.code for doubt in chosen.doubts] == ["steps-left-out"]


def alternating(count: int, *, lost: int = -1) -> list[Row]:
    """Return *count* markers of steps of 300, 100, 100, 300, … µs, and no kernel in step *lost*."""
    rows: list[Row] = []
    at = 0
    for number in range(count):
        rows += [note(f"ProfilerStep#{number}", at, 90), call(at, 5, number)]
        rows += [kernel(at + 10, 40, number)] if number != lost else []
        at += 300 if number % 3 == 0 else 100
    return rows


@pytest.mark.parametrize(
    ("markers", "lost", "cycle", "kept", "mean_us"),
    [
        (8, -1, 1, (2, 7), 180),  # two long steps of five
        (8, -1, 3, (4, 7), 500 / 3),  # three whole steps of five
        (4, -1, 3, (0, 3), 500 / 3),  # the warm-up is needed
        (6, 1, 3, (2, 5), 500 / 3),
        (5, 1, 3, (2, 4), 200),  # not what was lost: no cycle is whole
    ],
)
def test_whole_cycles_of_a_loader_are_kept(
    markers: int, lost: int, cycle: int, kept: tuple[int, int], mean_us: float
) -> None:
    """Every third step waits for the loader; only whole threes show the pace."""
    rows = alternating(markers, lost=lost)
    found = find_steps(select_events(trace(rows).events))
    _, host, devices = parsed(rows, found.rows if found else ())
    chosen = choose_window(found, host, devices, cycle=cycle)

    assert chosen.kept == kept
    assert chosen.host_ns / 1_000 == pytest.approx(mean_us)


@pytest.mark.parametrize(("pace_us", "measured"), [(120, 120), (30, 40)])
def test_pace_that_is_known_from_elsewhere_is_the_measured_one(pace_us: int, measured: int) -> None:
    """Unless the device works longer than that: 40 µs in each step."""
    rows = alternating(8)
    found = find_steps(select_events(trace(rows).events))
    _, host, devices = parsed(rows, found.rows if found else ())
    assert found is not None
    window = choose_window(found, host, devices)
    paced = pace_window(window, found.starts_ns, host, devices, pace_us * 1_000)

    assert (paced.measured_ns, paced.host_ns) == (measured * 1_000, pace_us * 1_000)
    assert any("the host runs ahead" in text for text in paced.notes) == (pace_us < measured)


@pytest.mark.parametrize(("pace_us", "measured"), [(90, 100), (120, 120)])
def test_device_that_does_not_feel_bursts_of_the_loader_sets_the_pace(
    pace_us: int, measured: int
) -> None:
    """It begins a step every 100 µs, 40 of them busy, while the host takes 60, 60 and 160."""
    rows: list[Row] = []
    for number, at in enumerate((0, 60, 220, 280, 340)):
        rows.append(note(f"ProfilerStep#{number}", at, 60))
        rows.append(call(at + 10, 5, number))
        rows.append(kernel(100 * number + 30, 40, number))
    found = find_steps(select_events(trace(rows).events))
    assert found is not None
    _, host, devices = parsed(rows, found.rows)
    window = choose_window(found, host, devices)
    paced = pace_window(window, found.starts_ns, host, devices, pace_us * 1_000)

    assert paced.measured_ns == measured * 1_000
