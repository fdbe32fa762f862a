"""Steady state: periods of host and device, fill, patterns, and what can never happen."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretrace.replaying import steady_state as module
from foretrace.replaying.engine.program import END_END, START_END, START_START, Program, ReplayError
from foretrace.replaying.engine.schedule import Schedule
from foretrace.replaying.engine.topological import prepare
from foretrace.replaying.steady_state import Steady, find_steady_state
from tests.support.programs import Link, by_hand

HOST_AND_DEVICE = np.array([False, True])


def job(
    repetitions: int,
    *,
    host_ns: int = 5,
    device_ns: int = 7,
    queue: int | None = None,
    sync: bool = False,
) -> Program:
    """One launch and one kernel per repetition; gaps 1, latency 6, return 8."""
    links = [
        Link(0, 0, 1, shift=1, kind="thread"),
        Link(1, 1, 1, shift=1, kind="stream"),
        Link(0, 1, 6, START_START, kind="launch"),
    ]
    if queue is not None:
        links.append(Link(1, 0, 0, START_END, shift=queue))
    if sync:
        links.append(Link(1, 0, 8, END_END, kind="return"))
    return by_hand([host_ns, device_ns], links, repetitions=repetitions, lane=[0, 1])


def alone(work_ns: list[int], repetitions: int) -> Program:
    """Return tasks without any edge."""
    return by_hand(work_ns, repetitions=repetitions)


def settled(**options: Any) -> Steady:
    """Return the steady state of `job`."""
    return find_steady_state(partial(job, **options), HOST_AND_DEVICE)


def test_host_bound_job_runs_at_the_host_period() -> None:
    """Kernels wait for their launches: both lanes repeat after 9 + 1."""
    found = settled(host_ns=9)

    assert (found.period_ns, found.host_period_ns, found.device_period_ns) == (10.0, 10.0, 10.0)
    assert found.settled
    assert found.fill_ns == 0


def test_device_bound_job_keeps_two_periods_while_the_host_runs_ahead() -> None:
    """Without a queue limit the host never learns how slow the device is."""
    found = settled()

    assert (found.period_ns, found.host_period_ns, found.device_period_ns) == (8.0, 6.0, 8.0)
    assert found.settled
    assert found.program.repetitions == module.PATIENCE


def test_launch_queue_slows_the_host_to_the_device_after_the_fill() -> None:
    """Three launches ahead, the host is at the device's pace."""
    found = settled(queue=3)

    assert (found.period_ns, found.host_period_ns, found.device_period_ns) == (8.0, 8.0, 8.0)
    assert found.settled
    assert found.fill_ns > 0


def test_sync_adds_host_and_device_up() -> None:
    """Launch latency 6, kernel 7, return 8 and the host's gap 1 make a step of 22."""
    found = settled(sync=True)

    assert found.period_ns == 22.0
    assert found.cycle == 1


def test_alternating_periods_are_averaged_exactly() -> None:
    """A chain that spans two repetitions gives steps of 3 and 8 in turn: 5.5 in the limit."""
    links = [Link(0, 0, 0, shift=1, kind="thread"), Link(0, 1), Link(1, 0, 0, shift=2)]
    alternating = partial(by_hand, [3, 8], links, lane=[0, 1])
    found = find_steady_state(lambda k: alternating(repetitions=k), HOST_AND_DEVICE)

    assert found.period_ns == 5.5
    assert (found.cycle, found.settled) == (2, True)


def test_lanes_of_one_side_only() -> None:
    """A group without tasks has no period."""
    links = [Link(0, 0, 0, shift=1, kind="thread")]
    found = find_steady_state(lambda k: by_hand([3], links, repetitions=k), np.array([False]))

    assert (found.host_period_ns, found.device_period_ns) == (3.0, None)


def starting_at(starts: Any) -> Any:
    """Return an engine under which one task starts at *starts* of the repetition."""

    def run(program: Program) -> Schedule:
        moments = np.repeat(starts(np.arange(program.repetitions)), 2)
        nobody = np.full(program.repetitions, -1, np.int32)
        return Schedule(moments, nobody, np.arange(2, dtype=np.int32), prepare(program))

    return run


def test_period_of_a_drift_is_reported_as_not_settled() -> None:
    """When each repetition is longer than the last, nothing settles, and it says so."""
    found = find_steady_state(partial(alone, [1]), np.array([False]), starting_at(lambda k: k**3))

    assert not found.settled
    assert found.program.repetitions == module.MOST_REPETITIONS


def test_patterns_without_a_cycle_settle_on_their_mean() -> None:
    """Periods that differ yet average out count as settled after the patience."""
    found = find_steady_state(
        partial(alone, [1]), np.array([False]), starting_at(lambda k: 1_000 * k + k % 2 + k % 3)
    )

    assert found.settled
    assert found.period_ns == pytest.approx(1_000, abs=0.6)


def test_work_budget_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """A huge window is not repeated more often than memory allows."""
    monkeypatch.setattr(module, "MOST_TASKS", 10)

    assert not settled().settled


def test_lane_that_overlaps_itself_across_the_seam_is_our_bug() -> None:
    """A serial lane cannot repeat faster than it works."""
    links = [Link(0, 1, kind="thread"), Link(0, 0, shift=1, kind="thread")]
    found = find_steady_state(lambda k: by_hand([3, 4], links, repetitions=k), np.array([False]))
    assert found.period_ns == 3.0  # two branches are no serial lane

    links = [Link(0, 1, kind="thread"), Link(1, 0, shift=1, kind="thread")]
    program = by_hand([3, 4], links, repetitions=4)
    with pytest.raises(ReplayError, match="lane 0 works 7 ns per repetition, yet repeats after 5"):
        module._check_busy(program, np.array([0]), np.array([[0], [5], [10], [15]]), 1)


def test_negative_lags_make_no_serial_lane() -> None:
    """Overlap inside one graph launch is legal, so its lane is not held to its busy time."""
    links = [Link(0, 1, -2, kind="stream"), Link(1, 0, 0, shift=1, kind="stream")]
    found = find_steady_state(lambda k: by_hand([3, 4], links, repetitions=k), np.array([True]))

    assert found.period_ns == 5.0


def test_an_empty_window_is_an_error() -> None:
    """There is no period of nothing."""
    with pytest.raises(ReplayError, match="nothing to replay"):
        find_steady_state(lambda k: by_hand([], repetitions=k), HOST_AND_DEVICE)


@settings(deadline=None)
@given(
    st.integers(1, 50), st.integers(1, 50), st.one_of(st.none(), st.integers(1, 5)), st.booleans()
)
def test_period_is_at_least_either_bound(
    host_ns: int,
    device_ns: int,
    queue: int | None,
    sync: bool,  # noqa: FBT001
) -> None:
    """No device time makes a step shorter than the host's or the device's own."""
    found = settled(host_ns=host_ns, device_ns=device_ns, queue=queue, sync=sync)

    assert found.settled
    assert found.period_ns >= max(host_ns + 1, device_ns + 1)
    if not sync and queue is None:
        assert found.period_ns == max(host_ns + 1, device_ns + 1)
