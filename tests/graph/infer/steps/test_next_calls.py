"""Calls of next() on a loader with workers: hand-over, waiting, and when waits repeat.

Times are µs; every step computes for 1 ms beside its call, unless said otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from foretrace.graph.infer.loading.loader_workers import doubt_short_window, infer_loader_workers
from foretrace.graph.infer.steps.next_calls import find_burst, find_cycle, read_next_calls
from foretrace.graph.infer.steps.steps import find_steps
from tests.support.recordings.events import MULTI_FETCH, Row, microseconds, note, op, parsed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from foretrace.graph.infer.events import Events
    from foretrace.graph.infer.steps.next_calls import NextCalls
    from foretrace.graph.infer.steps.steps import StepBounds
    from foretrace.graph.infer.tasks.host_tasks import HostTasks

SINGLE_FETCH = MULTI_FETCH.replace("Multi", "Single")


def record(
    took: Sequence[float], compute: float | Sequence[float] = 1_000, first: int = 7
) -> tuple[Events, HostTasks, StepBounds]:
    """Return a recording of a step per call, the last one open."""
    rows: list[Row] = []
    at = 0.0
    computes = compute if isinstance(compute, list) else [compute] * len(took)
    for number, (length, work) in enumerate(zip(took, computes, strict=True)):
        rows.append(note(f"ProfilerStep#{first + number}", at, length + work))
        rows.append(note(MULTI_FETCH, at, length))
        rows.append(op("aten::mm", at + length, work))
        at += length + work
    marks = [index for index, row in enumerate(rows) if row["name"].startswith("Profiler")]
    events, host, _ = parsed(rows, markers=marks)
    steps = find_steps(events)
    assert steps is not None
    return events, host, steps


def read(took: Sequence[float], compute: float = 1_000) -> NextCalls:
    """Return the calls of such a recording."""
    events, host, steps = record(took, compute)
    calls = read_next_calls(events, host, steps.thread)
    assert calls is not None
    return calls


@pytest.mark.parametrize(
    ("took", "compute", "own", "waited"),
    [
        ([150, 160, 140, 150], 1_000, 150, [0, 0, 0, 0]),  # nobody waits
        ([150, 900, 140, 910], 1_000, 145, [0, 1, 0, 1]),  # every other call does
        ([2_700, 2_600, 2_750], 1_000, 200, [1, 1, 1]),  # all do: the usual cost is assumed
        ([700, 720, 710], 1_000, 200, [1, 1, 1]),
        ([1_350, 1_370, 1_360], 90_000, 1_360, [0, 0, 0]),  # much data, hardly any of the step
        ([90, 2_500, 85, 3_000], 130_000, 87, [0, 0, 0, 1]),  # less than 2 % of a step is no wait
        ([40, 44, 79, 41], 2_200, 41, [0, 0, 0, 0]),  # uneven hand-overs are none either
    ],
)
def test_hand_over_is_what_calls_take_that_do_not_wait(
    took: Sequence[float], compute: float, own: int, waited: list[int]
) -> None:
    """What the shortest calls take, unless that is too long for a hand-over."""
    calls = read(took, compute)

    assert calls.own_ns // 1_000 == own
    assert calls.waited.astype(int).tolist() == waited


@pytest.mark.parametrize(
    ("took", "waited"),
    [
        ([900, 910, 890, 905, 900], [0, 0, 0, 0, 0]),  # as long after a long step
        ([900, 700, 900, 720, 900], [1, 1, 1, 1, 1]),  # a long step leaves less to wait for
        ([900, 910, 890], [1, 1, 1]),  # so few do not show it
    ],
)
def test_calls_that_take_as_long_after_a_long_step_do_not_wait(
    took: Sequence[float], waited: list[int]
) -> None:
    """Every other step computes 0.2 ms longer; a batch that comes evenly is waited for less."""
    computes = [3_200 if number % 2 == 0 else 3_000 for number in range(len(took))]
    events, host, steps = record(took, computes)
    calls = read_next_calls(events, host, steps.thread)

    assert calls is not None
    assert calls.waited.astype(int).tolist() == waited


def test_one_call_is_one_whatever_it_calls() -> None:
    """The longest piece of a call waits; its length is that of the whole call."""
    rows = [note(MULTI_FETCH, 0, 500), op("aten::empty", 50, 20), note(MULTI_FETCH, 2_000, 300)]
    events, host, _ = parsed(rows)
    calls = read_next_calls(events, host, 1)

    assert calls is not None
    assert microseconds(calls.took_ns) == [500, 300]
    assert microseconds(host.start_ns[calls.consumer]) == [70, 2_000]


def test_loader_without_workers_has_no_such_calls() -> None:
    """Nor has another thread."""
    events, host, _ = parsed([note(SINGLE_FETCH, 0, 500), note(MULTI_FETCH, 600, 5)])

    assert read_next_calls(events, host, 2) is None
    events, host, _ = parsed([note(SINGLE_FETCH, 0, 500)])
    assert read_next_calls(events, host, 1) is None


@pytest.mark.parametrize(
    ("took", "workers", "cycle"),
    [
        ([150, 160, 140, 150], None, 1),
        ([5_000, 5_010, 4_990], None, 1),
        ([150, 900, 140, 1_300, 150], None, 2),
        ([2_800, 90, 2_600], None, 2),
        ([2_200, 150, 150, 150, 2_200, 150], None, 4),
        ([150, 2_200, 150, 150], None, 0),  # once is no repetition
        ([150, 140, 145, 9_000, 150], None, 0),
        ([60, 47_000, 60, 60, 60, 60], None, 0),
        ([900, 5_000, 150, 3_000, 8_000], None, 0),
        ([150, 2_200, 150, 150], 4, 0),  # known workers, but no two of their bursts
        ([2_200, 150, 150, 150, 2_200, 150], 4, 4),
    ],
)
def test_waits_repeat_after_as_many_steps_as_there_are_workers(
    took: Sequence[float], workers: int | None, cycle: int
) -> None:
    """Each long wait needs another one a cycle away."""
    events, host, steps = record(took)
    calls = read_next_calls(events, host, steps.thread)

    assert calls is not None
    assert find_cycle(calls, steps, workers) == cycle


def test_warm_up_of_a_long_recording_shows_no_cycle() -> None:
    """Of 15 calls the first five do not count."""
    took = [90_000, 150, 150, 3_000, 150, *[150, 2_000] * 5]
    events, host, steps = record(took)
    calls = read_next_calls(events, host, steps.thread)

    assert calls is not None
    assert find_cycle(calls, steps, None) == 2


def test_single_burst_is_spread_over_the_steps_until_the_next() -> None:
    """9 ms in the fourth of five steps: the next burst is 4 steps away or more.

    4 workers: 1.15 + 9 / 4 ms. 5 of them counted: 1.15 + 9 / 5.
    """
    events, host, steps = record([150, 150, 150, 9_150, 150])
    calls = read_next_calls(events, host, steps.thread)
    assert calls is not None
    burst = find_burst(calls, steps)
    guessed = infer_loader_workers(events, host, steps, None)
    counted = infer_loader_workers(events, host, steps, 5)

    assert burst == (3, 9_000_000, 1_150_000, 4, 10)
    assert guessed is not None
    assert counted is not None
    assert guessed.loads is not None
    assert (guessed.pace_ns, counted.pace_ns) == (3_400_000, 2_950_000)
    assert set(guessed.loads.work_ns.tolist()) == {3_400_000}
    assert [doubt.code for doubt in guessed.doubts] == ["loader-bursts"]
    assert guessed.seen.slack == pytest.approx((0.85 * (1_150 + 9_000 / 8) / 3_400, 1.15))
    assert counted.seen.slack == (0.85, 1.15)  # one wait does not show how waits vary
    assert "record 8 steps or more" in guessed.doubts[0].text
    assert counted.doubts == ()


@pytest.mark.parametrize(
    ("first", "workers", "codes"),
    [
        (9, (4,), []),  # the wait is for batch 12: 8 workers wait for batch 8 or 16
        (13, (4, 8, 16), ["loader-bursts"]),  # batch 16: 4, 8 or 16 workers
        (8, (4, 8), ["loader-bursts"]),  # batch 11 fits none: steps are counted from elsewhere
    ],
)
def test_workers_that_deliver_together_begin_with_batch_0(
    first: int, workers: tuple[int, ...], codes: list[str]
) -> None:
    """A batch that was waited for has a number that is a multiple of theirs."""
    events, host, steps = record([150, 150, 150, 9_150, 150], first=first)
    calls = read_next_calls(events, host, steps.thread)
    assert calls is not None
    burst = find_burst(calls, steps)
    inferred = infer_loader_workers(events, host, steps, None)

    assert burst is not None
    assert inferred is not None
    assert burst.guess_workers() == workers
    assert [doubt.code for doubt in inferred.doubts] == codes


STEADY = np.arange(4) * 1_200_000.0
FAR_BEHIND, FALLING_BEHIND = STEADY + 6e6, STEADY * 1.3


@pytest.mark.parametrize(
    ("took", "first", "counted", "device", "said"),
    [
        ([150] * 4, 9, None, STEADY, "noted"),  # batch 8 or 16 may be late
        ([150] * 3, 9, None, STEADY[:3], "doubted"),  # or even 12
        ([150] * 4, 9, None, FALLING_BEHIND, "doubted"),  # as after a burst
        ([150] * 4, 13, None, STEADY, ""),  # 16 was not late
        ([150] * 8, 9, None, STEADY, ""),
        ([150] * 4, 9, 4, STEADY, ""),  # one of four calls would have waited
        ([150] * 4, 9, 16, STEADY, "doubted"),
        ([150] * 4, 9, None, FAR_BEHIND, ""),  # the host has not waited for five steps
        ([150] * 4, 15, None, np.full(4, np.nan), ""),
        ([5_000] * 4, 9, None, STEADY, ""),  # each waits
    ],
)
def test_bursts_may_lie_outside_a_short_recording(
    took: Sequence[float],
    first: int,
    counted: int | None,
    device: NDArray[np.float64],
    said: str,
) -> None:
    """Eight workers that deliver together are waited for once in eight steps."""
    events, host, steps = record(took, first=first)
    workers = infer_loader_workers(events, host, steps, counted)
    assert workers is not None
    doubted = doubt_short_window(workers, steps, device, counted)

    is_doubted = [doubt.code for doubt in doubted.doubts] == ["loader-bursts-hidden"]
    assert (bool(doubted.notes), is_doubted) == (said == "noted", said == "doubted")


def test_first_wait_of_a_job_is_the_start_of_its_loader() -> None:
    """In the first step of a job it is no burst; in a later one it is."""
    waits = []
    for first in (0, 7):
        events, host, steps = record([9_150, 150, 150], first=first)
        workers = infer_loader_workers(events, host, steps, None)
        assert workers is not None
        waits.append(workers.pace_ns)

    assert waits == [0, 1_150_000 + 9_000_000 // 4]


@pytest.mark.parametrize(
    ("took", "counted", "codes"),
    [
        ([900, 5_000, 150, 3_000, 8_000], None, ["loader-bursts"]),  # they do not repeat
        ([5_000, 5_010, 4_990], None, []),
        ([150, 150, 150], None, []),
        ([2_000, 2_600, 1_500, 2_100], None, ["loader-bursts"]),  # 3.1 ms a step, 0.23 either way
        ([150, 9_000, 150, 3_000, 150, 8_000], 2, ["loader-bursts"]),  # they repeat, unevenly
        ([150, 9_000, 150, 9_000, 150, 9_100], 2, []),
        ([90_000, 150, 150, 3_000, 150, *[150, 2_000] * 5], None, []),  # the start of the loader
    ],
)
def test_uneven_waits_are_doubted(
    took: Sequence[float], counted: int | None, codes: list[str]
) -> None:
    """So few waits, so uneven, leave the mean step open by more than a tenth in 1 of 10 cases."""
    events, host, steps = record(took)
    workers = infer_loader_workers(events, host, steps, counted)

    assert workers is not None
    assert [doubt.code for doubt in workers.doubts] == codes


def test_several_calls_in_a_step_show_no_cycle() -> None:
    """Only one call per step tells which steps wait."""
    rows = [note(f"ProfilerStep#{n}", 5_000 * n, 5_000) for n in range(3)]
    rows += [note(MULTI_FETCH, at, 150) for at in (0, 1_000, 5_000, 10_000)]
    rows.append(note(MULTI_FETCH, 6_000, 3_000))
    rows.sort(key=lambda row: row["start_ns"])
    marks = [index for index, row in enumerate(rows) if row["name"].startswith("Profiler")]
    events, host, _ = parsed(rows, markers=marks)
    steps = find_steps(events)
    calls = read_next_calls(events, host, 1)

    assert steps is not None
    assert calls is not None
    assert (find_cycle(calls, steps, None), find_burst(calls, steps)) == (1, None)
    assert np.flatnonzero(calls.waited).tolist() == [3]
