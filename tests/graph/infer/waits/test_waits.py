"""Every blocked call gets one cause, and keeps what it costs when nothing blocks it."""

from __future__ import annotations

import numpy as np
import pytest

from foretrace.graph.infer.tasks.api_calls import DEVICE, EVENT, NONE, OWN, STREAM, Waits
from foretrace.graph.infer.waits.waits import split_waiting
from foretrace.graph.model import Rules
from foretrace.tracer.trace import Device
from tests.support.recordings.events import Row, call, copy, kernel, op, parsed, sync

PAGEABLE_UP, PINNED_UP = "HtoD (Pageable -> Device)", "HtoD (Pinned -> Device)"
PAGEABLE_DOWN = "DtoH (Device -> Pageable)"


def waits_of(rows: list[Row], *devices: str, **rules: bool) -> Waits:
    """Return what the calls of a recording wait for; *devices* are names."""
    makers = [Device(index, name) for index, name in enumerate(devices)]
    return split_waiting(*parsed(rows), Rules(**rules), makers)


def test_device_synchronisation() -> None:
    """It waits for all streams, costs 5 µs itself, and returns 9 µs after the last kernel."""
    rows = [call(0, 5, 1), call(5, 5, 2), kernel(10, 90, 1), kernel(20, 200, 2, stream=8)]
    waits = waits_of([*rows, sync(10, 229)])

    assert waits.wait.tolist() == [NONE, NONE, DEVICE]
    assert waits.work_ns.tolist() == [5_000, 5_000, 5_000]
    assert waits.return_ns.tolist() == [0, 0, 9_000]


def test_synchronisation_that_did_not_wait_keeps_its_length() -> None:
    """The kernel was done before; the call still waits when the graph is edited."""
    rows = [call(0, 5, 1), kernel(10, 90, 1), sync(200, 203)]
    waits = waits_of(rows)

    assert waits.wait.tolist() == [NONE, DEVICE]
    assert waits.work_ns.tolist() == [5_000, 3_000]


def test_synchronisation_that_waited_for_something_untraced_is_work() -> None:
    """The last kernel ended 800 µs before the call returned."""
    rows = [call(0, 5, 1), kernel(10, 190, 1), sync(10, 1_000)]
    waits = waits_of(rows)

    assert waits.work_ns.tolist() == [5_000, 990_000]
    assert waits.counts["syncs that waited for something untraced"] == 1


def test_synchronisation_of_the_stream_that_the_record_names() -> None:
    """The record says stream 8, although the thread launched on stream 7 last."""
    rows = [
        call(0, 5, 1),
        call(5, 5, 2),
        kernel(10, 90, 2),
        kernel(20, 200, 1, stream=8),
        sync(10, 229, name="cudaStreamSynchronize", correlation=3),
        {**kernel(10, 219, 3, name="Stream Sync"), "kind": "sync", "wait_stream": 8},
    ]
    waits = waits_of(rows)

    assert waits.wait.tolist() == [NONE, NONE, STREAM]
    assert waits.wait_lane.tolist() == [-1, -1, 1]


def test_synchronisation_of_the_stream_last_launched_on() -> None:
    """Without a record the thread's last launch tells the stream; other threads' do not."""
    rows = [
        call(0, 5, 1),
        call(6, 2, 2, thread=2),
        kernel(10, 90, 1),
        kernel(20, 200, 2, stream=8),
        sync(10, 105, name="cudaStreamSynchronize"),
        sync(10, 12, name="cudaStreamSynchronize", thread=3),
    ]
    waits = waits_of(rows)

    assert waits.wait.tolist() == [NONE, STREAM, NONE, NONE]
    assert waits.wait_lane.tolist() == [-1, 0, -1, -1]


def test_synchronisation_that_returned_with_another_stream() -> None:
    """Stream 7 was done 100 µs before the return, stream 8, launched on earlier, just before it."""
    rows = [call(0, 5, 1), call(6, 5, 2), kernel(10, 190, 1, stream=8), kernel(20, 80, 2)]
    waits = waits_of([*rows, sync(12, 204, name="cudaStreamSynchronize")])

    assert (waits.wait.tolist()[-1], waits.wait_lane.tolist()[-1]) == (STREAM, 1)
    assert waits.return_ns.tolist()[-1] == 4_000


def test_synchronisation_of_the_stream_into_which_a_graph_was_launched() -> None:
    """It begins on stream 7, and its branch on stream 8 ends long before."""
    rows = [call(0, 15, 1, name="cudaGraphLaunch"), kernel(20, 900, 1)]
    rows += [kernel(100, 100, 1, stream=8), sync(16, 924, name="cudaStreamSynchronize")]
    waits = waits_of(rows)

    assert (waits.wait.tolist()[-1], waits.wait_lane.tolist()[-1]) == (STREAM, 0)


def test_event_synchronisation_waits_for_the_task_that_released_it() -> None:
    """Of two streams the one whose last task ended just before the return."""
    rows = [call(0, 5, 1), call(5, 5, 2), kernel(10, 90, 1), kernel(20, 200, 2, stream=8)]
    waits = waits_of([*rows, sync(10, 105, name="cudaEventSynchronize")])

    assert waits.wait.tolist() == [NONE, NONE, EVENT]
    assert waits.event_task.tolist() == [-1, -1, 0]
    assert waits.return_ns.tolist() == [0, 0, 5_000]


def two_devices() -> list[Row]:
    """Return a kernel of 300 µs on stream 7 of device 1, one of 80 µs on that of device 0."""
    return [call(0, 5, 1), call(5, 5, 2), kernel(10, 300, 1, device=1), kernel(20, 80, 2)]


def test_synchronisation_of_a_stream_that_two_devices_have() -> None:
    """The record names the device: stream 7 of device 0 was done at 100 µs."""
    record = {**kernel(10, 94, 3, name="Stream Sync"), "kind": "sync", "wait_stream": 7}
    rows = [*two_devices(), sync(10, 104, name="cudaStreamSynchronize", correlation=3), record]
    waits = waits_of(rows)

    assert (waits.wait.tolist()[-1], waits.wait_lane.tolist()[-1]) == (STREAM, 0)
    assert waits.return_ns.tolist()[-1] == 4_000


@pytest.mark.parametrize(("returns", "lane"), [(104, 0), (315, 1), (900, 0)])
def test_synchronisation_of_one_of_two_devices(returns: float, lane: int) -> None:
    """It is that whose work was done when the call returned; else that last launched on."""
    waits = waits_of([*two_devices(), sync(10, returns)])

    assert (waits.wait.tolist()[-1], waits.wait_lane.tolist()[-1]) == (DEVICE, lane)


@pytest.mark.parametrize(("named", "lane"), [(True, 1), (False, 0)])
def test_synchronisation_of_a_device_that_was_done(named: bool, lane: int) -> None:  # noqa: FBT001
    """The record names the device that the call waits for; else it is that last launched on."""
    record = {**kernel(320, 1, 3, name="Context Sync", device=1), "kind": "sync", "stream": -1}
    rows = [*two_devices(), sync(10, 315), sync(320, 322, correlation=3)]
    waits = waits_of([*rows, record] if named else rows)

    assert waits.wait_lane.tolist()[-2:] == [1, lane]


def throttled(*, named: bool, marked: bool) -> list[Row]:
    """Return two steps of two kernels; each step waits for the event of the step before.

    The synchronisation's record names the event's, and that one was recorded, or not.
    """
    rows = []
    for step in range(2):
        at, first = 200 * step, 10 * step
        rows += [call(at, 5, first + 1), call(at + 10, 5, first + 2)]
        rows += [kernel(100 * (2 * step + n) + 150, 99, first + n + 1) for n in range(2)]
        rows += [sync(at + 20, at + 155, name="cudaEventSynchronize", correlation=first + 3)]
        record = {**kernel(at + 20, 130, first + 3, name="Event Sync"), "kind": "sync"}
        rows += [{**record, "wait_stream": 7, "wait_event": first + 4 - 10}] if named else []
        rows += [call(at + 160, 2, first + 4, name="cudaEventRecord")] if marked else []
    return [*rows, kernel(50, 99, 0)]


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("marked", [True, False])
def test_event_synchronisation_waits_for_the_step_before(*, named: bool, marked: bool) -> None:
    """The second one returns with the last kernel of step 0, while those of step 1 are queued."""
    events, host, devices = parsed(throttled(named=named, marked=marked))
    waits = split_waiting(events, host, devices, Rules())
    last = waits.event_task[waits.wait == EVENT][-1]

    assert events.correlation[devices.event[last]] == 2
    assert waits.work_ns[waits.wait == EVENT].tolist()[-1] == 5_000


def test_calls_of_one_api_share_their_median_return_lag() -> None:
    """3, 9 and 12 µs were seen; the fourth call did not wait."""
    rows = []
    for number, lag in enumerate((3, 9, 12)):
        at = 300 * number
        rows += [call(at, 5, number), kernel(at + 10, 90, number), sync(at + 10, at + 100 + lag)]
    waits = waits_of([*rows, sync(900, 901)])

    assert waits.return_ns.tolist()[1::2] == [9_000, 9_000, 9_000]
    assert waits.return_ns.tolist()[-1] == 9_000


def test_download_blocks_and_holds_the_lock() -> None:
    """A copy to pageable memory returns 6 µs after it ended."""
    rows = [
        call(0, 116, 1, name="cudaMemcpyAsync"),
        copy(100, 10, 1, PAGEABLE_DOWN, bytes=4.0),
    ]
    waits = waits_of(rows)

    assert (waits.wait.tolist(), waits.return_ns.tolist()) == ([OWN], [6_000])
    assert (waits.work_ns.tolist(), waits.holds_lock.tolist()) == ([5_000], [True])


@pytest.mark.parametrize(
    ("size", "direction", "returns", "wait"),
    [
        (6e6, PAGEABLE_UP, 440, OWN),
        (6e6, PAGEABLE_UP, 12, NONE),
        (6e4, PAGEABLE_UP, 440, NONE),
        (6e6, PINNED_UP, 5, NONE),
        (6e6, PINNED_UP, 440, NONE),
        (6e6, "DtoD", 440, NONE),
    ],
)
def test_upload_blocks_when_large_and_pageable(
    size: float, direction: str, returns: int, wait: int
) -> None:
    """It returns 60 µs before its copy ends: the rest is staged. Others return at once."""
    rows = [
        call(0, returns, 1, name="cudaMemcpyAsync"),
        copy(100, 400, 1, direction, bytes=size),
    ]
    waits = waits_of(rows)

    assert waits.wait.tolist() == [wait]
    assert waits.return_ns.tolist() == [-60_000 if wait == OWN else 0]


@pytest.mark.parametrize(
    ("length", "work_ns", "return_ns", "untraced_ns"),
    [(900, 5_000, 400_000, 460_000), (120, 120_000, -60_000, 0)],
    ids=["later", "earlier"],
)
def test_strange_member_of_a_blocking_class(
    length: float, work_ns: int, return_ns: int, untraced_ns: int
) -> None:
    """Two uploads return 60 µs before their copy ends, the third earlier, or 400 µs after it."""
    rows = []
    for number, lasts in enumerate((440, 440, length)):
        at = 2_000 * number
        rows += [
            call(at, lasts, number, name="cudaMemcpyAsync"),
            copy(at + 100, 400, number, PAGEABLE_UP, bytes=6e6),
        ]
    waits = waits_of(rows)

    assert waits.wait.tolist() == [OWN, OWN, OWN]
    assert waits.work_ns.tolist() == [5_000, 5_000, work_ns]
    assert waits.return_ns.tolist() == [-60_000, -60_000, return_ns]
    assert waits.untraced_ns.tolist() == [0, 0, untraced_ns]


def queue(depth: int) -> list[Row]:
    """1,200 launches of 100 µs kernels; a launch waits for room *depth* launches behind."""
    rows: list[Row] = []
    now = 0
    for number in range(1_200):
        done = max(now + 1, 10 + 100 * (number - depth) + 1)
        rows += [call(now, done - now, number), kernel(10 + 100 * number, 100, number)]
        now = done
    return rows


def test_full_queue_blocks_launches() -> None:
    """From the 1,034th launch on, where it meets the device, each waits 100 µs and costs 1."""
    waits = waits_of(queue(1_023), "NVIDIA A100-SXM4-40GB")

    assert waits.queue_depth == 1_023
    assert waits.counts["launches blocked by a full queue"] == 166
    assert np.unique(waits.work_ns).tolist() == [1_000]


def test_deeper_queue_is_not_imposed() -> None:
    """Where 1,100 launches were outstanding the limit of 1,023 is not this device's."""
    waits = waits_of(queue(1_100), "NVIDIA A100-SXM4-40GB")

    assert waits.queue_depth is None
    assert waits.counts.get("launches blocked by a full queue") is None


@pytest.mark.parametrize(
    ("device", "api", "depth"),
    [
        ("NVIDIA H100 80GB HBM3", "cudaLaunchKernel", 1_023),
        ("Tesla V100-SXM2-32GB", "cudaLaunchKernel", 1_023),
        ("", "cudaLaunchKernel", 1_023),
        ("AMD Instinct MI300X", "hipLaunchKernel", None),
        ("gfx942", "cudaLaunchKernel", None),
        ("", "hipLaunchKernel", None),
    ],
)
def test_queue_is_imposed_on_nvidia_only(device: str, api: str, depth: int | None) -> None:
    """Told by the device's name, or by the API where the recording does not name it."""
    waits = waits_of([call(0, 5, 1, name=api), kernel(10, 5, 1)], device)

    assert waits.queue_depth == depth


SHORT_CALLS = [
    *(row for at in (0, 10, 20) for row in (call(at, 5, at), kernel(at + 6, 1, at))),
    *(call(at, 5, name="cudaMemcpyAsync") for at in (30, 35)),
    *(call(at, 5, name="cudaMalloc") for at in (40, 45)),
]
"""They show what each API usually costs."""


def test_launch_during_a_download_waits_for_the_lock() -> None:
    """It began during the other thread's download and returned 150 µs after: 50 are its own."""
    rows = [
        *SHORT_CALLS,
        call(100, 516, 100, name="cudaMemcpyAsync"),
        copy(600, 10, 100, PAGEABLE_DOWN, bytes=4.0),
        call(200, 566, 200, thread=2),
        kernel(770, 5, 200, stream=8),
    ]
    waits = waits_of(rows)

    assert np.flatnonzero(waits.locked).tolist() == [8]
    assert waits.work_ns.tolist()[-1] == 55_000
    assert waits.counts["calls blocked by the driver lock"] == 1


def test_long_calls_that_end_together_share_the_lock() -> None:
    """A launch ends with a long call of another thread that began before it."""
    rows = [
        *SHORT_CALLS,
        call(50, 500, name="cudaMalloc"),
        call(150, 410, 150, thread=2),
        kernel(570, 5, 150, stream=8),
    ]
    waits = waits_of(rows)

    assert np.flatnonzero(waits.locked).tolist() == [8]
    assert np.flatnonzero(waits.holds_lock).tolist() == [7]
    assert waits.work_ns.tolist()[-2:] == [500_000, 5_000]


def test_long_call_without_a_cause_stays_work() -> None:
    """It is counted, so that much unexplained waiting shows."""
    waits = waits_of([*SHORT_CALLS, call(50, 500, name="cudaMalloc"), call(600, 900, 9)])

    assert waits.work_ns.tolist()[-2:] == [500_000, 900_000]
    assert waits.counts["long calls kept as work"] == 2
    assert waits.counts["long calls kept as work, us"] == 1_400


def test_rule_off_leaves_every_length() -> None:
    """The depth of the queue is known all the same."""
    rows = [call(0, 5, 1), kernel(10, 90, 1), sync(10, 109)]
    waits = waits_of(rows, split_waiting=False)

    assert waits.work_ns.tolist() == [5_000, 99_000]
    assert (waits.wait.tolist(), waits.queue_depth) == ([NONE, NONE], 1_023)


def test_host_alone_waits_for_nothing() -> None:
    """Operators of a CPU job keep their lengths."""
    waits = waits_of([op("aten::mm", 0, 900)])

    assert (waits.work_ns.tolist(), waits.queue_depth) == ([900_000], None)


def test_stream_of_a_lost_launch_is_unknown() -> None:
    """Nobody launched what the stream holds: the call waits for nothing in particular."""
    waits = waits_of([kernel(10, 90, 1), sync(0, 105, name="cudaStreamSynchronize")])

    assert (waits.wait.tolist(), waits.wait_lane.tolist()) == ([NONE], [-1])
