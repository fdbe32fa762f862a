"""Device tasks: streams become lanes, launches are found by id, shared time counts once."""

from __future__ import annotations

import numpy as np

from foretrace.graph.model import DEVICE_KINDS
from tests.support.recordings.events import call, copy, kernel, microseconds, parsed


def test_streams_of_all_devices_are_lanes() -> None:
    """In order of device, then stream; stream 0 is a legal one."""
    rows = [kernel(0, 1, 1, device=1, stream=0), kernel(2, 1, 2), kernel(4, 1, 3, stream=0)]
    _, _, devices = parsed(rows)

    assert list(zip(devices.device, devices.stream, devices.lane, strict=True)) == [
        (0, 0, 0),
        (0, 7, 1),
        (1, 0, 2),
    ]
    assert devices.lanes == 3
    assert devices.before().tolist() == [-1, -1, -1]


def test_launch_is_found_by_correlation() -> None:
    """A kernel without a call, or without an id, was launched before the recording."""
    rows = [call(0, 5, 1), kernel(5, 1, 1), kernel(6, 1, 2), kernel(7, 1, -1)]
    _, _, devices = parsed(rows)

    assert devices.launch.tolist() == [0, -1, -1]
    assert devices.launching.tolist() == [0]


def test_one_call_launches_a_whole_graph() -> None:
    """All kernels of a replayed CUDA graph carry the id of one call."""
    rows = [call(0, 5, 1, name="cudaGraphLaunch"), kernel(5, 1, 1), kernel(6, 1, 1)]
    _, _, devices = parsed(rows)

    assert devices.launch.tolist() == [0, 0]


def test_overlap_on_one_stream_counts_once() -> None:
    """The busy time of the three adds up to the 16 µs that the stream was busy."""
    rows = [kernel(0, 10, 1), kernel(4, 4, 2), kernel(8, 8, 3), kernel(9, 5, 4, stream=8)]
    _, _, devices = parsed(rows)

    assert microseconds(devices.busy_ns) == [10, 0, 6, 5]
    assert devices.overlaps == 2


def test_kinds_come_from_the_record_and_the_name() -> None:
    """Communication runs as kernels whose names tell."""
    rows = [
        kernel(0, 1, 1),
        kernel(1, 1, 2, name="ncclDevKernel_AllReduce_Sum_f32_RING_LL"),
        kernel(2, 1, 3, name="ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t"),
        copy(3, 1, 4, "HtoD (Pinned -> Device)"),
        {**kernel(4, 1, 5, name="Memset (Device)"), "kind": "memset"},
    ]
    _, _, devices = parsed(rows)

    assert [DEVICE_KINDS[kind] for kind in devices.kind] == [
        "kernel",
        "collective",
        "p2p",
        "memcpy",
        "memset",
    ]


def test_host_alone_has_no_lanes() -> None:
    """A CPU job is legal."""
    _, _, devices = parsed([call(0, 5)])

    assert (len(devices), devices.lanes, devices.before().tolist()) == (0, 0, [])


def test_lane_of_a_stream_of_a_device() -> None:
    """Stream 7 exists on two devices; where the device is not told, the last one's counts."""
    rows = [kernel(0, 5, 1), kernel(0, 5, 2, device=1), kernel(0, 5, 3, device=1, stream=8)]
    _, _, devices = parsed(rows)
    device, stream = np.array([0, 1, 0, -1, 1]), np.array([7, 7, 8, 8, -1])

    assert devices.find_lanes(device, stream).tolist() == [0, 1, -1, 2, -1]


def test_only_device_needs_no_number() -> None:
    """Records may count devices in another way."""
    _, _, devices = parsed([kernel(0, 5, 1)])

    assert devices.find_lanes(np.array([3]), np.array([7])).tolist() == [0]
