"""What stood still for no recorded reason keeps its wait; what had one, does not."""

from __future__ import annotations

import numpy as np
import pytest

from foretrace.graph.build import build
from foretrace.graph.infer.waits.stream_gaps import assign_stream_lags
from foretrace.graph.infer.waits.untraced_waits import Cause, UntracedWaits, find_untraced_waits
from foretrace.graph.infer.waits.waits import split_waiting
from foretrace.graph.model import Rules
from tests.support.recordings.events import (
    Row,
    call,
    copy,
    kernel,
    microseconds,
    parsed,
    step_ms,
    steps,
    sync,
    trace,
)

LATENCY_NS = 10_000
NCCL = "ncclDevKernel_AllReduce"


def waits_of(rows: list[Row], *after: tuple[int, int]) -> UntracedWaits:
    """Return what the tasks of *rows* waited for; of each pair *after*, the second for the first.

    Tasks are numbered by stream, then start. Everything starts 10 µs after its call at best.
    """
    events, host, devices = parsed(rows)
    src, dst = np.array(after, np.int64).reshape(-1, 2).T
    return find_untraced_waits(
        events,
        devices,
        host,
        split_waiting(events, host, devices, Rules()),
        np.full(len(devices), LATENCY_NS),
        assign_stream_lags(devices, {}),
        [Cause(src, dst, 0)],
    )


def two(start: float, *others: Row, called: float = 5, stream: int = 7) -> list[Row]:
    """Return a kernel until 110 µs, and one that starts at *start* on the same stream."""
    first = [call(0, 4, 1), kernel(10, 100, 1, stream=stream)]
    return [*first, call(called, 4, 2), kernel(start, 50, 2, stream=stream), *others]


def test_wait_that_nothing_explains() -> None:
    """The second kernel was launched long before, and the stream was free from 110 µs on."""
    assert microseconds(waits_of(two(1_000)).wait_ns) == [0, 890]


@pytest.mark.parametrize(
    ("rows", "wait"),
    [
        (two(150), 0),
        (two(1_000, called=985), 0),
        (two(1_000, called=500), 490),
    ],
    ids=["a gap", "its launch", "after its launch"],
)
def test_wait_with_a_cause_of_its_own_stream(rows: list[Row], wait: float) -> None:
    """Ordinary pauses are short; a task cannot start before its call."""
    assert microseconds(waits_of(rows).wait_ns) == [0, wait]


def test_wait_for_an_event() -> None:
    """The other stream's kernel ends at 990: 10 µs later is usual, and none without the event."""
    rows = two(1_000, call(12, 4, 3), kernel(980, 10, 3, stream=8))

    assert microseconds(waits_of(rows, (2, 1)).wait_ns) == [0, 0, 0]
    assert microseconds(waits_of(rows).wait_ns) == [0, 890, 0]


def test_wait_while_kernels_of_another_stream_run() -> None:
    """From 110 to 700 µs there may have been no room; the 300 after that nothing explains."""
    busy = [call(12, 4, 3), kernel(20, 680, 3, stream=8)]

    assert microseconds(waits_of(two(700, *busy)).wait_ns) == [0, 0, 0]
    assert microseconds(waits_of(two(1_000, *busy)).wait_ns) == [0, 300, 0]
    assert microseconds(waits_of(two(1_000, *busy[:1], kernel(20, 100, 3, stream=8))).wait_ns) == [
        0,
        890,
        0,
    ]


@pytest.mark.parametrize(("direction", "wait"), [("DtoH", 0), ("HtoD", 890)])
def test_copy_waits_for_its_engine(direction: str, wait: float) -> None:
    """A download waits for another stream's download, not for an upload."""
    rows = [call(0, 4, 1), kernel(10, 100, 1), call(5, 4, 2, name="cudaMemcpyAsync")]
    rows += [copy(1_000, 5, 2, "DtoH (Device -> Pinned)")]
    rows += [call(12, 4, 3), copy(20, 979, 3, f"{direction} (Pinned)", stream=8)]

    assert microseconds(waits_of(rows).wait_ns) == [0, wait, 0]


def test_what_follows_a_collective_waited_for_it() -> None:
    """No event was recorded; a kernel that happens to end then is no cause."""
    collective = [call(12, 4, 3), kernel(200, 795, 3, stream=8, name=NCCL)]
    waits = waits_of(two(1_000, *collective))

    assert microseconds(waits.wait_ns) == [0, 0, 0]
    assert (waits.src.tolist(), waits.dst.tolist(), waits.lag_ns.tolist()) == ([2], [1], [5_000])


def test_collective_waited_for_the_kernel_before_it() -> None:
    """It starts 2 µs after the kernel ended; 40 µs would be chance."""
    before = [call(0, 4, 1), kernel(10, 20, 1, stream=8, name=NCCL), call(5, 4, 2)]
    late = kernel(1_000, 50, 2, stream=8, name=NCCL)

    for end, src in ((998, [0]), (960, [])):
        rows = [*before, late, call(12, 4, 3), kernel(end - 30, 30, 3)]
        assert waits_of(rows).src.tolist() == src


def test_first_task_of_a_stream_may_follow_what_was_launched_before() -> None:
    """Unless its own call waited for it."""
    late = [call(0, 4, 1), kernel(1_000, 50, 1)]
    blocking = [call(0, 1_007, 1, name="cudaMemcpyAsync"), copy(1_000, 2, 1, "DtoH (Pageable)")]

    assert waits_of(late).wait_ns.tolist() == [0]
    assert microseconds(waits_of(blocking).wait_ns) == [990]


def test_first_task_of_a_stream_waits_for_its_own_launch() -> None:
    """A kernel of stream 8 waits for an event of 110 µs, and is launched at 590 µs."""
    rows = [call(0, 4, 1), kernel(10, 100, 1), call(590, 5, 2), kernel(600, 50, 2, stream=8)]

    assert waits_of(rows, (0, 1)).wait_ns.tolist() == [0, 0]


def test_task_whose_launch_is_not_recorded_may_have_been_launched_late() -> None:
    """The second kernel has no call. Where there are no calls at all, none is missing."""
    rows = [call(0, 4, 1), kernel(10, 100, 1), kernel(700, 50, -1)]

    assert waits_of(rows).wait_ns.tolist() == [0, 0]
    assert microseconds(waits_of(rows[1:]).wait_ns) == [0, 590]


def late_copy() -> list[Row]:
    """Return a kernel until 110 µs, and a download that starts at 700 µs and blocks until 709."""
    rows = [call(0, 4, 1), kernel(10, 100, 1), call(5, 704, 2, name="cudaMemcpyAsync")]
    return [*rows, copy(700, 5, 2, "DtoH (Device -> Pageable)")]


def test_doubt_names_the_place() -> None:
    """0.59 of 0.72 ms a step."""
    (doubt,) = build(trace(steps(5, 720, late_copy()))).state.doubts

    assert doubt.code == "untraced-wait"
    assert "0.590 ms of a step (82%)" in doubt.text
    assert doubt.place == (
        "step 1 of 3, stream 7, before Memcpy DtoH (Device -> Pageable) after gemm"
    )


def test_call_that_waited_for_something_untraced_is_doubted() -> None:
    """The kernel ended at 110 µs, the synchronisation at 900."""
    rows = [call(0, 4, 1), kernel(10, 100, 1), sync(20, 900)]
    (doubt,) = build(trace(steps(5, 1_000, rows))).state.doubts

    assert "0.880 ms of a step (88%)" in doubt.text
    assert doubt.place == "step 1 of 3, thread 1, cudaDeviceSynchronize"


def test_wait_is_kept_whatever_changes() -> None:
    """Kernels of 50 instead of 100 µs: the rest of the step stays."""
    recording = trace(steps(5, 720, late_copy()))

    assert step_ms(recording) == pytest.approx(0.720, abs=0.001)
    assert step_ms(recording, 0.5) == pytest.approx(0.670, abs=0.001)
