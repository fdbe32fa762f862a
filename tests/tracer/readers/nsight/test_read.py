"""What the columns say about an export of Nsight Systems, table by table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from foretrace.errors import TraceError
from foretrace.tracer.readers.nsight.read import read_nsight
from tests.support.recordings.nsight import (
    CUDA_EVENT,
    GLOBAL_PID,
    GLOBAL_TID,
    KERNEL,
    MEMCPY,
    MEMSET,
    RUNTIME,
    SYNC,
    THREAD,
    call,
    copy,
    export,
    kernel,
    named_range,
    strings,
    sync,
)

if TYPE_CHECKING:
    from foretrace.tracer.trace import Trace

ALL = 2**32 - 1


def read(**tables: list[dict[str, Any]]) -> Trace:
    """Read an export with these tables and the usual strings."""
    return read_nsight(export(StringIds=strings(), **tables), "small.sqlite")


def test_calls_and_kernels() -> None:
    """Calls lose the version in their name, kernels keep the whole one; times start at 0."""
    events = read(**{RUNTIME: [call(1, 500, 560, 3)], KERNEL: [kernel(600, 900, 3)]}).events

    assert events["name"].tolist() == ["cudaLaunchKernel", "void gemm<float>(float*)"]
    assert events["kind"].tolist() == ["runtime", "kernel"]
    assert events["start_ns"].tolist() == [0, 100]
    assert events["duration_ns"].tolist() == [60, 300]
    assert events["thread"].tolist() == [THREAD, -1]
    assert events["stream"].tolist() == [-1, 7]
    assert events["correlation"].tolist() == [3, 3]
    assert events["blocks"].tolist() == [-1, 8]
    assert events["block_threads"].tolist() == [-1, 128]
    assert events["graph_node"].tolist() == [-1, -1]


def test_kernels_without_a_long_name_use_the_short_one() -> None:
    """A name that is in no table of strings is "unknown"."""
    rows = [kernel(1, 2, 1, demangledName=None), kernel(3, 4, 2, demangledName=99, shortName=98)]

    assert read(**{KERNEL: rows}).events["name"].tolist() == ["gemm", "unknown"]


def test_nodes_of_a_graph() -> None:
    """`graphNodeId` is kept where the schema has it."""
    events = read(**{KERNEL: [kernel(1, 2, 1, graphNodeId=12), kernel(3, 4, 1)]}).events

    assert events["graph_node"].tolist() == [12, -1]


def test_copies_and_memsets_get_the_names_of_kineto() -> None:
    """Numbers of kinds become words; what has no word is Unknown."""
    memset = copy(9, 10, 3, (0, 0, 0)) | {"memKind": 2}
    events = read(
        **{MEMCPY: [copy(1, 2, 1, (1, 0, 2)), copy(3, 4, 2, (99, 7, 1))], MEMSET: [memset]}
    ).events

    assert events["name"].tolist() == [
        "Memcpy HtoD (Pageable -> Device)",
        "Memcpy Unknown (Unknown -> Pinned)",
        "Memset (Device)",
    ]
    assert events["bytes"].tolist() == [4096.0] * 3


def test_syncs_are_named_after_their_calls() -> None:
    """The numbers in `syncType` changed between schemas; the name of the call did not."""
    calls = [call(name, 10 * i, 10 * i + 5, i) for i, name in enumerate([5, 6, 7, 8, 9])]
    syncs = [
        sync(10 * i + 1, 10 * i + 4, i, stream, 4) for i, stream in enumerate([7, 7, ALL, ALL, ALL])
    ]
    events = read(**{RUNTIME: calls, SYNC: syncs}).events
    found = events[events["kind"] == "sync"]

    assert found["name"].tolist() == [
        "Stream Sync",
        "Stream Wait Event",
        "Event Sync",
        "Context Sync",
        "Event Query",
    ]
    assert found["stream"].tolist() == [7, 7, -1, -1, -1]
    assert found["wait_stream"].tolist() == [7, -1, -1, -1, -1]
    assert found["wait_event"].tolist() == [-1] * 5


def test_an_event_wait_names_the_latest_record() -> None:
    """Of two records of event 4, the one made last before the wait counts."""
    records = [
        {"streamId": 7, "correlationId": 1, "eventId": 4},
        {"streamId": 20, "correlationId": 3, "eventId": 4},
        {"streamId": 21, "correlationId": 9, "eventId": 4},
    ]
    waits = [sync(5, 6, 5, 13, 4), sync(7, 8, 6, 13, 8)]
    found = read(**{RUNTIME: [call(6, 5, 6, 5)], SYNC: waits, CUDA_EVENT: records}).events
    found = found[found["kind"] == "sync"]

    assert found["wait_stream"].tolist() == [20, 13]
    assert found["wait_event"].tolist() == [3, -1]


def test_names_may_be_of_several_tables() -> None:
    """A range is called like a kernel, and a call as unknown as another kernel."""
    kernels = [kernel(600, 900, 3), kernel(901, 910, 4, demangledName=99, shortName=98)]
    calls = [call(1, 500, 560, 3), call(97, 570, 580, 4)]
    ranges = [named_range("void gemm<float>(float*)", 400, 590)]
    events = read(**{RUNTIME: calls, KERNEL: kernels}, NVTX_EVENTS=ranges).events

    assert events["name"].tolist() == [
        "void gemm<float>(float*)",
        "cudaLaunchKernel",
        "unknown",
        "void gemm<float>(float*)",
        "unknown",
    ]


def test_ranges_by_text_or_by_registered_string() -> None:
    """Both kinds of ranges count, marks do not, and a range without an end is counted."""
    ranges = [
        named_range("step 1", 0, 50),
        named_range(None, 10, 20, textId=10),
        named_range("start/end", 15, 18, eventType=60),
        named_range("a mark", 16, None, eventType=34),
        named_range("open", 17, None),
        named_range(None, 18, 19, textId=999),
    ]
    trace = read(NVTX_EVENTS=ranges)

    assert trace.events["name"].tolist() == ["step 1", "registered range", "start/end", ""]
    assert set(trace.events["kind"]) == {"annotation"}
    assert trace.events["thread"].tolist() == [THREAD] * 4
    assert trace.meta.warnings == {"unfinished_ranges": 1}


def test_metadata_of_the_machine() -> None:
    """Device, command line and start of the session are read where the export has them."""
    gpu = {"id": 0, "name": "A100", "smCount": 108, "totalMemory": 40, "maxWarpsPerSm": 64,
           "threadsPerWarp": 32, "maxRegistersPerSm": 65536, "maxShmemPerSm": 167936,
           "computeMajor": 8, "computeMinor": 0}  # fmt: skip
    capture = [
        {"name": "PROCESS_0:COMMAND", "value": "python"},
        {"name": "PROCESS_0:ARGUMENT_0", "value": "train.py"},
        {"name": "PROCESS_0:ARGUMENT_1", "value": "--amp"},
    ]
    trace = read(
        TARGET_INFO_GPU=[gpu],
        META_DATA_CAPTURE=capture,
        TARGET_INFO_SESSION_START_TIME=[{"utcEpochNs": 1_000}],
        PROFILER_OVERHEAD=[{"start": 7, "end": 9, "globalTid": GLOBAL_TID, "nameId": 10}],
        **{KERNEL: [kernel(5, 9, 1)]},
    )

    assert trace.meta.command == "python train.py --amp"
    assert (trace.meta.devices[0].name, trace.meta.devices[0].threads_per_sm) == ("A100", 2048)
    assert trace.meta.extra["origin_ns"] == 1_005
    assert trace.events["blocks_per_sm"].tolist()[0] == 8.0
    assert trace.events["kind"].tolist() == ["kernel", "overhead"]


def test_processes_with_device_work_are_ranks() -> None:
    """Correlations are unique in a process only: each kernel belongs to its own process's call."""
    other = 18 << 24
    calls = [call(1, 0, 5, 1), call(1, 2, 6, 1, tid=other | 5)]
    kernels = [kernel(10, 20, 1), kernel(11, 21, 1, globalPid=other, deviceId=1)]
    trace = read(**{RUNTIME: calls, KERNEL: kernels})

    assert trace.meta.ranks == (0, 1)
    assert trace.events["rank"].tolist() == [0, 0, 1, 1]
    assert trace.events["device"].tolist() == [-1, 0, -1, 1]
    assert trace.meta.warnings == {}


def late_by(shift: int, blocking: int = 4) -> Trace:
    """Read four launches and blocking copies whose device times are late by *shift* ns."""
    calls, kernels, copies = [], [], []
    for i in range(4):
        begin = 1_000_000 * i
        calls += [
            call(1, begin, begin + 5_000, 2 * i),
            call(4, begin + 6_000, begin + 90_000, 2 * i + 1),
        ]
        kernels.append(kernel(begin + 10_000 + shift, begin + 60_000 + shift, 2 * i))
        way = (2, 2, 0) if i < blocking else (2, 2, 1)
        copies.append(copy(begin + 62_000 + shift, begin + 80_000 + shift, 2 * i + 1, way))
    return read(**{RUNTIME: calls, KERNEL: kernels, MEMCPY: copies})


def test_a_late_device_clock_is_moved_back() -> None:
    """A blocking copy to the host cannot end after its call: 5 ms late is undone up to there."""
    trace = late_by(5_000_000)

    assert trace.meta.extra["clock_shift_ns"] == -4_990_000
    assert trace.meta.warnings == {"clock_shift": 8}
    assert trace.events["start_ns"].tolist()[:4] == [0, 6_000, 20_000, 72_000]


def test_an_early_device_clock_is_moved_forward() -> None:
    """A kernel cannot start before its call: 2 ms early is undone to the calls' starts."""
    trace = late_by(-2_000_000, blocking=0)

    assert trace.meta.extra["clock_shift_ns"] == 1_990_000
    assert trace.meta.warnings == {"clock_shift": 8}


@pytest.mark.parametrize("shift", [0, 40_000, 5_000_000])
def test_a_lag_alone_moves_no_clock(shift: int) -> None:
    """Without a copy that blocks, late kernels may just have queued; 30 µs are left alone, too."""
    trace = late_by(shift, blocking=0 if shift > 1_000_000 else 4)

    assert "clock_shift_ns" not in trace.meta.extra


def test_steps_without_their_device_events_are_named() -> None:
    """Of four steps with two launches each, the third lost its kernels."""
    steps = [named_range(f"step {i}", 1_000 * i, 1_000 * i + 900) for i in range(4)]
    launches = [(i, 1_000 * (i // 2) + 10 * (i % 2)) for i in range(8)]
    calls = [call(1, at, at + 5, i) for i, at in launches]
    kernels = [kernel(at + 100 + i, at + 105 + i, i) for i, at in launches if i not in (4, 5)]
    trace = read(NVTX_EVENTS=steps, **{RUNTIME: calls, KERNEL: kernels})

    assert trace.meta.extra["lost_steps"] == ["step 2"]
    assert trace.meta.warnings == {"launch_without_kernel": 2, "steps_without_device": 1}


def gpu(number: int, name: str) -> dict[str, Any]:
    """Return a row of the machine's GPUs; every figure is of no one in particular."""
    return {"id": number, "name": name, "smCount": 108, "maxWarpsPerSm": 64, "threadsPerWarp": 32}


@pytest.mark.parametrize(
    ("gpus", "accelerator", "index"),
    [
        (["Intel(R) Iris(R) Xe Graphics", "Microsoft Basic Render Driver", "NVIDIA A100"], 2, 0),
        (["AMD Radeon(TM) Graphics", "NVIDIA GeForce RTX 4070 Laptop GPU"], 1, 0),
        (["A100-SXM4-40GB", "llvmpipe (LLVM 15)"], 0, 0),
        (["Orin (nvgpu)"], 0, 0),
    ],
)
def test_accelerator_is_told_from_other_gpus(gpus: list[str], accelerator: int, index: int) -> None:
    """Work names device 0, the first that runs CUDA; a display's GPU may have that id."""
    table = [gpu(number, name) for number, name in enumerate(gpus)]

    trace = read(TARGET_INFO_GPU=table, **{KERNEL: [kernel(5, 9, 1)]})

    assert [(d.index, d.name) for d in trace.meta.devices] == [(index, gpus[accelerator])]


def test_graph_recorded_as_a_whole_is_one_kernel() -> None:
    """It belongs to its launch; one whose kernels are there, too, is not counted twice."""
    whole = {"start": 20, "end": 90, "deviceId": 0, "streamId": 7, "globalPid": GLOBAL_PID}
    graphs = [
        whole | {"correlationId": 3, "graphId": 5},
        whole | {"correlationId": 1, "graphId": 6},
    ]

    trace = read(**{KERNEL: [kernel(5, 9, 1)], "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": graphs})

    rows = trace.events[["name", "kind", "duration_ns", "correlation"]].values.tolist()
    assert rows[1] == ["CUDA graph 5", "kernel", 70, 3]
    assert len(rows) == 2
    assert trace.meta.warnings["whole_graphs"] == 1


def test_export_without_cuda_says_what_to_trace() -> None:
    """It is an export, of something else."""
    with pytest.raises(TraceError, match=r"without CUDA calls; profile with nsys .* cuda,nvtx"):
        read(OSRT_API=[{"start": 1, "end": 2}], META_DATA_EXPORT=[{"name": "a", "value": "b"}])
