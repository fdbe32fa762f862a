"""Waits between streams become edges from the work that was recorded, or launched, before."""

from __future__ import annotations

import numpy as np

from foretrace.graph.infer.waits.stream_events import estimate_event_lag, find_event_edges
from tests.support.recordings.events import Row, call, kernel, parsed

WAIT = "cudaStreamWaitEvent"


def edges(rows: list[Row], group: list[int] | None = None) -> list[tuple[int, int, bool]]:
    """Return source, destination and whether recorded; device tasks numbered by stream, start."""
    events, host, devices = parsed(rows)
    groups = np.zeros(len(host), np.int64) if group is None else np.array(group)
    found = find_event_edges(events, devices, host, groups)
    return list(zip(*(column.tolist() for column in found[:3]), strict=True))


def record(start: float, correlation: int, stream: int, **source: int) -> Row:
    """Return the record of a wait of *stream*."""
    row = kernel(start, 0, correlation, name="Stream Wait Event", stream=stream)
    return {**row, "kind": "sync", **source}


def test_wait_of_the_next_launch() -> None:
    """Stream 8's next task waits for the last one launched before the wait on stream 7."""
    rows = [
        call(0, 1, 1),
        call(2, 1, 2),
        call(4, 1, 3, name=WAIT),
        call(6, 1, 4),
        kernel(10, 20, 1),
        kernel(30, 20, 2),
        kernel(52, 10, 4, stream=8),
    ]

    assert edges(rows) == [(1, 2, False)]


def test_guess_walks_back_to_what_had_ended() -> None:
    """The last task launched on stream 7 ended after stream 8 went on: the one before is it."""
    rows = [
        call(0, 1, 1),
        call(2, 1, 2),
        call(4, 1, 3, name=WAIT),
        call(6, 1, 4),
        kernel(10, 20, 1),
        kernel(30, 90, 2),
        kernel(40, 10, 4, stream=8),
    ]

    assert edges(rows) == [(0, 2, False)]


def test_record_names_the_awaited_event() -> None:
    """The event was recorded after the first kernel, long before the wait."""
    rows = [
        call(0, 1, 1),
        call(1, 1, 5, name="cudaEventRecord"),
        call(2, 1, 2),
        call(4, 1, 3, name=WAIT),
        call(6, 1, 4),
        kernel(10, 20, 1),
        kernel(30, 20, 2),
        kernel(52, 10, 4, stream=8),
        record(4, 3, 8, wait_stream=7, wait_event=5),
    ]

    assert edges(rows) == [(0, 2, True)]


def test_record_that_names_the_waiting_stream_only() -> None:
    """It tells that stream 8 waits, although the thread launches on stream 9 next."""
    rows = [
        call(0, 1, 1),
        call(4, 1, 3, name=WAIT),
        call(5, 1, 6),
        call(6, 1, 4),
        kernel(10, 20, 1),
        kernel(32, 10, 4, stream=8),
        kernel(11, 5, 6, stream=9),
        record(4, 3, 8),
    ]

    assert edges(rows) == [(0, 1, False)]


def test_other_groups_of_threads_are_no_sources() -> None:
    """Stream 7 belongs to a loader's thread, which has nothing to do with the wait."""
    rows = [
        call(4, 1, 3, name=WAIT),
        call(6, 1, 4),
        call(0, 1, 1, thread=2),
        kernel(10, 20, 1),
        kernel(32, 10, 4, stream=8),
    ]

    assert edges(rows, group=[0, 0, 1]) == []


def test_wait_before_anything_was_launched() -> None:
    """There is nothing to wait for, and nothing that waits."""
    rows = [call(0, 1, 3, name=WAIT), call(6, 1, 4), kernel(10, 10, 4, stream=8)]

    assert edges(rows) == []
    assert edges(rows[:1]) == []
    assert edges(rows[1:]) == []


def test_wait_that_no_launch_follows() -> None:
    """The window ended before stream 8 went on."""
    rows = [call(0, 1, 1), call(4, 1, 3, name=WAIT), kernel(10, 20, 1)]

    assert edges(rows) == []


def test_stream_whose_launches_were_lost_is_no_source() -> None:
    """Stream 9 holds work of before the recording; the wait is for stream 7."""
    rows = [
        call(0, 1, 1),
        call(4, 1, 3, name=WAIT),
        call(6, 1, 4),
        kernel(10, 20, 1),
        kernel(32, 10, 4, stream=8),
        kernel(0, 5, 99, stream=9),
    ]

    assert edges(rows) == [(0, 1, False)]


def test_wait_is_for_nothing_launched_after_the_last_record() -> None:
    """Without a record of the wait, its event was recorded at the latest by the last such call."""
    rows = [
        call(0, 1, 1),
        call(1, 1, 5, name="cudaEventRecord"),
        call(2, 1, 2),
        call(4, 1, 3, name=WAIT),
        call(6, 1, 4),
        kernel(10, 20, 1),
        kernel(30, 20, 2),
        kernel(52, 10, 4, stream=8),
    ]

    assert edges(rows) == [(0, 2, False)]


def test_source_of_a_recorded_wait_whose_event_was_recorded_before_the_window() -> None:
    """Only the stream is known: of that one, the last task launched before; none of stream 9."""
    rows = [
        call(0, 1, 1),
        call(2, 1, 6),
        call(4, 1, 3, name=WAIT),
        call(6, 1, 4),
        kernel(10, 20, 1),
        kernel(32, 10, 4, stream=8),
        kernel(5, 15, 6, stream=9),
        record(4, 3, 8, wait_stream=7, wait_event=99),
    ]

    assert edges(rows) == [(0, 1, False)]


def test_lag_of_events_is_that_of_waits_that_bind() -> None:
    """The task of stream 8 starts 3 µs after the awaited one; one long fired event counts not."""
    rows = [
        call(0, 1, 1),
        call(4, 1, 3, name=WAIT),
        call(6, 1, 4),
        kernel(10, 20, 1),
        kernel(33, 10, 4, stream=8),
        call(100, 1, 5, name=WAIT),
        call(102, 1, 6),
        kernel(115, 10, 6, stream=8),
    ]
    events, host, devices = parsed(rows)
    found = find_event_edges(events, devices, host, np.zeros(len(host), np.int64))

    assert estimate_event_lag(found, devices, host, np.full(len(devices), 8_000)) == 3_000


def test_wait_for_work_that_was_lost_is_unknown() -> None:
    """Nothing on another stream had been launched before the wait, whatever it waited for."""
    rows = [call(4, 1, 3, name=WAIT), call(6, 1, 4), kernel(500, 10, 4, stream=8)]
    events, host, devices = parsed(rows)
    found = find_event_edges(events, devices, host, np.zeros(len(host), np.int64))

    assert found.unknown.tolist() == [0]
