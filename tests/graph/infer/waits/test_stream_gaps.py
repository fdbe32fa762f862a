"""What a device adds: gaps by kind of neighbours, latency by kind of work."""

from __future__ import annotations

import numpy as np
import pytest

from foretrace.graph.infer.waits.stream_events import find_event_edges
from foretrace.graph.infer.waits.stream_gaps import (
    DEFAULT_LATENCY_NS,
    assign_stream_lags,
    assume_kernel_gap,
    estimate_kernel_gaps,
    estimate_launch_lags,
)
from foretrace.graph.infer.waits.waits import split_waiting
from foretrace.graph.model import Rules
from tests.support.recordings.events import Row, call, copy, kernel, parsed

UP = "HtoD (Pinned -> Device)"


def launched(*tasks: Row) -> list[Row]:
    """Return *tasks* and a launch of each at the very beginning."""
    return [*(call(i, 1, row["correlation"]) for i, row in enumerate(tasks)), *tasks]


def lags(rows: list[Row], *, from_start: bool = True) -> tuple[list[int], int]:
    """Return launch lags per device task, and that of plain kernels."""
    events, host, devices = parsed(rows)
    waits = split_waiting(events, host, devices, Rules())
    found, plain = estimate_launch_lags(events, devices, host, waits, from_start=from_start)
    return found.tolist(), plain


def test_gap_is_the_mean_by_kinds_of_neighbours() -> None:
    """Kernels lie 1 and 3 µs apart, the copy 5 µs behind; each lag is its kinds' mean."""
    rows = launched(
        kernel(100, 10, 1),
        kernel(111, 10, 2),
        kernel(124, 10, 3),
        copy(139, 10, 4, UP),
        kernel(200, 10, 5),
    )
    _, host, devices = parsed(rows)
    gaps = estimate_kernel_gaps(devices, host)

    assert gaps == {("kernel", "kernel"): 2_000, ("kernel", "memcpy"): 5_000}
    assert assign_stream_lags(devices, gaps).tolist() == [0, 2_000, 2_000, 5_000, 3_500]


def test_pause_of_a_late_launch_is_no_gap() -> None:
    """The second kernel was launched after the first one had ended."""
    rows = [call(0, 1, 1), kernel(10, 10, 1), call(21, 1, 2), kernel(27, 10, 2)]
    _, host, devices = parsed(rows)

    assert estimate_kernel_gaps(devices, host) == {}
    assert assign_stream_lags(devices, {}).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("pause", "gap_us", "least", "most"), [(7.0, 1.4, 0.9, 2.5), (2.0, 1.4, 0.9, 2.0), (0, 0, 0, 0)]
)
def test_gap_that_was_never_recorded_is_the_usual_one(
    pause: float, gap_us: float, least: float, most: float
) -> None:
    """No kernel waited for another one. The gap is no longer than their pauses."""
    rows = [call(9 + 20 * n, 1, n) for n in range(5)]
    rows += [kernel(10 + 20 * n, 20 - pause, n) for n in range(5)]
    _, host, devices = parsed(rows)
    gaps: dict[tuple[str, str], int] = {}
    found = assume_kernel_gap(devices, gaps)

    assert estimate_kernel_gaps(devices, host) == {}
    assert gaps == ({("kernel", "kernel"): gap_us * 1_000} if gap_us else {})
    assert found == (pytest.approx((least / gap_us, most / gap_us)) if gap_us else None)


def test_gap_that_was_recorded_is_not_assumed() -> None:
    """That between a fill and a kernel tells as much; one after a copy does not."""
    _, _, devices = parsed(launched(kernel(100, 10, 1), kernel(111, 10, 2)))
    gaps = {("memset", "kernel"): 1_100}

    assert assume_kernel_gap(devices, gaps) is None
    assert gaps == {("memset", "kernel"): 1_100}
    assert assume_kernel_gap(devices, {("memcpy", "kernel"): 9_000}) is not None


def test_gap_while_another_stream_works_does_not_count() -> None:
    """The 9 µs pause has a neighbour that contends; the 1 µs pause has none."""
    rows = launched(
        kernel(100, 10, 1),
        kernel(119, 10, 2),
        kernel(100, 25, 3, stream=8),
        kernel(500, 10, 4),
        kernel(511, 10, 5),
    )
    _, host, devices = parsed(rows)

    assert estimate_kernel_gaps(devices, host) == {("kernel", "kernel"): 1_000}


def test_gap_beside_another_stream_is_better_than_none() -> None:
    """Where every pair has a neighbour, they count."""
    rows = launched(kernel(100, 10, 1), kernel(119, 10, 2), kernel(100, 30, 3, stream=8))
    _, host, devices = parsed(rows)

    assert estimate_kernel_gaps(devices, host) == {("kernel", "kernel"): 9_000}


def test_latency_is_the_median_by_class_of_work() -> None:
    """Kernels 6, 8, 30 µs; large copies 20, small ones 12; a fill 7. Queued work does not count."""
    rows = []
    for number, latency in enumerate((6, 8, 30)):
        at = 100 * number
        rows += [call(at, 5, number), kernel(at + latency, 20, number)]
    for number, latency, size in ((3, 20, 1e6), (4, 12, 100.0)):
        at = 100 * number
        rows += [call(at, 5, number), copy(at + latency, 30, number, UP, bytes=size)]
    fill = {**kernel(507, 10, 5, name="Memset (Device)"), "kind": "memset"}
    rows += [call(500, 5, 5), fill, call(501, 5, 6), kernel(517, 9, 6)]
    found, plain = lags(rows)

    assert plain == 8_000
    assert found == [8_000, 8_000, 8_000, 20_000, 12_000, 7_000, 8_000]


def test_latency_where_no_stream_was_ever_idle() -> None:
    """Every launch met a busy stream: a default, never the backlog's length."""
    rows = [kernel(0, 500, 9), call(10, 5, 1), kernel(500, 10, 1)]

    assert lags(rows) == ([DEFAULT_LATENCY_NS] * 2, DEFAULT_LATENCY_NS)


def test_device_alone_takes_the_default() -> None:
    """No host, no launches, no latency."""
    assert lags([kernel(0, 10, 1)]) == ([DEFAULT_LATENCY_NS], DEFAULT_LATENCY_NS)


@pytest.mark.parametrize(("from_start", "lag"), [(True, 8_000), (False, 13_000)])
def test_launch_counted_from_the_end_of_its_call(from_start: bool, lag: int) -> None:  # noqa: FBT001  # a pytest parameter
    """With the rule off the call's own 5 µs come on top."""
    assert lags([call(0, 5, 1), kernel(8, 9, 1)], from_start=from_start) == ([lag], 8_000)


def test_launch_behind_a_gate_shows_no_latency() -> None:
    """Stream 8 is idle, but waits for stream 7 until 500 µs; one launch of 8 µs met nothing."""
    rows = [
        call(0, 5, 1),
        call(6, 1, 2, name="cudaStreamWaitEvent"),
        call(8, 5, 3),
        kernel(8, 490, 1),
        kernel(500, 50, 3, stream=8),
    ]
    events, host, devices = parsed(rows)
    waits = split_waiting(events, host, devices, Rules())
    gates = find_event_edges(events, devices, host, np.zeros(len(host), np.int64))
    gated, _ = estimate_launch_lags(events, devices, host, waits, gates, from_start=True)

    assert gated.tolist() == [8_000, 8_000]


def test_latency_of_most_launches_held_back_unseen() -> None:
    """Seven of ten wait for something that was not recorded; the others show the latency."""
    late = [call(1_000 * n, 5, n) for n in range(10)]
    late += [kernel(1_000 * n + (8 if n < 3 else 400), 20, n) for n in range(10)]

    assert lags(late)[1] == 8_000


def test_branch_of_a_graph_that_met_a_busy_stream_shows_no_latency() -> None:
    """Both branches start at 60 µs, after what ran on stream 7; the second graph met no work."""
    rows = [call(0, 5, 1), kernel(10, 49, 1), call(200, 9, 3, name="cudaGraphLaunch")]
    rows += [call(6, 9, 2, name="cudaGraphLaunch"), kernel(60, 30, 2), kernel(60, 50, 2, stream=8)]
    rows += [kernel(220, 30, 3), kernel(220, 50, 3, stream=8)]
    found, _ = lags(rows)

    assert found == [10_000, 20_000, 20_000, 20_000, 20_000]


def test_latency_of_a_graph_is_its_first_kernels() -> None:
    """A graph takes 20 µs to begin; its branch on stream 20, 300 µs later, tells nothing."""
    rows = [
        call(0, 15, 1, name="cudaGraphLaunch"),
        kernel(20, 290, 1),
        kernel(320, 30, 1, stream=20),
        call(400, 5, 2),
        kernel(407, 5, 2),
    ]

    assert lags(rows) == ([20_000, 7_000, 20_000], 7_000)
