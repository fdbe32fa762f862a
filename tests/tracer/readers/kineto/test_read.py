"""What the columns say about a Kineto recording, value by value."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from foretrace.tracer.readers.kineto import decode
from foretrace.tracer.readers.kineto.read import read_kineto
from foretrace.tracer.readers.load import load
from tests.support.recordings.bent import Event, base, device, host, kernels, text
from tests.support.recordings.malformed import CASES, Case

if TYPE_CHECKING:
    from pathlib import Path

    from foretrace.tracer.trace import Trace


def read(*events: Event, source: str = "trace.json", **root: Any) -> Trace:
    """Read a trace of these events."""
    return read_kineto(json.dumps({"traceEvents": list(events)} | root).encode(), source)


def column(trace: Trace, name: str, kind: str) -> list[Any]:
    """Return a column of the rows of one kind."""
    events = trace.events
    return events.loc[events["kind"] == kind, name].tolist()


def test_times_are_integer_ns_from_the_first_event() -> None:
    """The first start is 0 and a fraction of a microsecond keeps all its digits."""
    trace = read(host("cpu_op", "a", 1000.437, 2), host("cpu_op", "b", 1003.7, 0.2))

    assert trace.events["start_ns"].tolist() == [0, 3263]
    assert trace.events["duration_ns"].tolist() == [2000, 200]


@pytest.mark.parametrize("epoch", [4458676522690, 8898676522690, 1712345678901234])
def test_times_since_1970_keep_their_nanoseconds(epoch: int) -> None:
    """A double holds such microseconds to 256 ns only; the text holds them exactly."""
    raw = text({"traceEvents": [host("cpu_op", "a", 0, 1), host("cpu_op", "b", 1, 1)]})
    raw = raw.replace(b'"ts": 0,', b'"ts": %d.655,' % epoch)
    raw = raw.replace(b'"ts": 1,', b'"ts": %d.004,' % (epoch + 1))

    trace = read_kineto(raw, "trace.json")

    assert trace.events["start_ns"].tolist() == [0, 349]
    assert epoch * 1000 + 655 == trace.meta.extra["origin_ns"]


def test_base_time_is_part_of_the_origin() -> None:
    """`baseTimeNanoseconds` plus the first timestamp is when the recording began."""
    trace = read(host("cpu_op", "a", 5, 1), baseTimeNanoseconds=1_700_000_000_000_000_000)

    assert trace.meta.extra["origin_ns"] == 1_700_000_000_000_005_000


def test_kinds_lanes_and_links() -> None:
    """Each category becomes a kind; host events have threads, device events streams."""
    trace = read_kineto(text(base()), "trace.json")
    first = trace.events.iloc[:4]

    assert first["kind"].tolist() == ["annotation", "op", "runtime", "kernel"]
    assert first["thread"].tolist() == [9, 9, 9, -1]
    assert first["stream"].tolist() == [-1, -1, -1, 7]
    assert first["device"].tolist() == [-1, -1, -1, 0]
    assert first["correlation"].tolist() == [-1, -1, 1, 1]
    assert first["external_id"].tolist() == [-1, 100, -1, -1]
    assert first["blocks"].tolist() == [-1, -1, -1, 80]
    assert first["block_threads"].tolist() == [-1, -1, -1, 256]


def test_metadata_of_the_job() -> None:
    """Devices, rank and world size come from the root of the file."""
    meta = read_kineto(text(base()), "trace.json").meta

    assert (meta.devices[0].name, meta.devices[0].sm_count) == ("Tesla V100", 80)
    assert (meta.ranks, meta.world_size, meta.format) == ((0,), 1, "kineto")


def test_the_rank_may_be_in_the_file_name() -> None:
    """Without distributedInfo the name of the file decides."""
    trace = read(host("cpu_op", "a", 1, 1), source="job_rank12.json")

    assert trace.meta.ranks == (12,)
    assert trace.events["rank"].tolist() == [12]


def test_the_oldest_categories_mean_the_same(tmp_path: Path) -> None:
    """Names of 2020, string threads and "external id" give the same kinds, lanes and ids."""
    case = next(case for case in CASES if case.name == "categories_of_2021")
    trace = load(case.write(tmp_path))

    assert len(column(trace, "name", "op")) == 12
    assert column(trace, "name", "annotation") == ["ProfilerStep#0", "ProfilerStep#1"]
    assert {5555} == set(column(trace, "thread", "runtime"))
    assert {7} == set(column(trace, "stream", "kernel"))
    assert {100} == set(column(trace, "external_id", "kernel"))
    assert column(trace, "duration_ns", "kernel")[:4] == [0, 0, 0, 9000]


def test_a_nested_driver_call_leaves_its_kernel_with_the_outer_call(tmp_path: Path) -> None:
    """The kernel of the inner call carries the outer call's correlation."""
    case = next(case for case in CASES if case.name == "nested_driver_call")
    trace = load(case.write(tmp_path))

    assert list(range(1, 13)) == column(trace, "correlation", "kernel")
    assert "cuLaunchKernel" not in column(trace, "name", "runtime")


def test_kernels_of_a_graph_share_a_launch_and_keep_their_nodes(tmp_path: Path) -> None:
    """One `cudaGraphLaunch`, six kernels: one correlation, six nodes."""
    case = next(case for case in CASES if case.name == "graph_launch")
    trace = load(case.write(tmp_path))

    assert column(trace, "correlation", "kernel")[6:] == [7] * 6
    assert column(trace, "graph_node", "kernel")[6:] == [40, 41, 42, 43, 44, 45]


def test_an_impossible_length_ends_where_the_next_kernel_starts(tmp_path: Path) -> None:
    """208 days are cut to the 10 µs until the next kernel of the stream."""
    case = next(case for case in CASES if case.name == "kernel_of_208_days")
    trace = load(case.write(tmp_path))

    assert column(trace, "duration_ns", "kernel")[2] == 10_000


def test_backward_operators_know_their_forward_thread() -> None:
    """The profiler's own thread number is replaced by the forward operator's thread."""
    forward = host("cpu_op", "aten::mm", 1, 2, {"Sequence number": 4, "Fwd thread id": 0})
    backward = host("cpu_op", "MmBackward0", 9, 2, {"Sequence number": 4, "Fwd thread id": 1})
    lonely = host("cpu_op", "AddBackward0", 12, 2, {"Sequence number": 3, "Fwd thread id": 1})
    trace = read(forward, backward | {"tid": 77}, lonely | {"tid": 77})

    assert trace.events["forward_thread"].tolist() == [-1, 9, -1]
    assert trace.events["sequence"].tolist() == [4, 4, 3]


@pytest.mark.parametrize("key", ["Input Dims", "Input dims"])
def test_shapes_are_compact_json(key: str) -> None:
    """Shapes of one call are one string; an operator without inputs has none."""
    args = {key: [[32, 3], []], "Input type": ["float", ""], "flops": 12}
    trace = read(host("cpu_op", "aten::mm", 1, 2, args), host("cpu_op", "x", 5, 1, {key: []}))

    assert trace.events["shapes"][0] == "[[32,3],[]]"
    assert trace.events["dtypes"][0] == '["float",""]'
    assert trace.events["flops"][0] == 12.0
    assert trace.events.loc[1, ["shapes", "dtypes", "flops"]].isna().all()


def test_collectives_have_group_size_and_bytes() -> None:
    """Elements times their size, the larger of both sides; on the host and on the device."""
    args = {"Process Group Name": "7", "Group size": 2, "In msg nelems": 10,
            "Out msg nelems": 20, "dtype": "BFloat16"}  # fmt: skip
    kernel = device("kernel", "ncclDevKernel_AllGather_RING_LL", 9, 1, 1)
    kernel["args"] |= args
    trace = read(
        host("cpu_op", "record_param_comms", 1, 2, args), kernel, host("cpu_op", "x", 20, 1)
    )

    assert trace.events["group"].tolist()[:2] == ["7", "7"]
    assert trace.events["group_size"].tolist() == [2, 2, -1]
    assert trace.events["bytes"].tolist()[:2] == [40.0, 40.0]


def test_sends_and_receives_name_their_peer() -> None:
    """A sender records whom it sends to, a receiver from whom; a pair without a group as well."""

    def pair(at: float, **args: Any) -> Event:
        kernel = device("kernel", "ncclDevKernel_SendRecv", at, 1, round(at))
        kernel["args"] |= args
        return kernel

    group = {"Process Group Name": "pp"}
    trace = read(
        pair(1, **group, **{"Dst Rank": 3}),
        pair(3, **group, **{"Src Rank": 0}),
        pair(5, **{"Dst Rank": 0}),
        pair(7, **group),
    )

    assert trace.events["group"].tolist() == ["pp ->3", "pp 0->", " ->0", "pp"]


def test_sync_records_say_what_they_wait_for() -> None:
    """A stream sync waits for its own stream, an event wait for a record on another one."""

    def sync(at: float, kind: str, **args: Any) -> Event:
        record = device("cuda_sync", kind, at, 1, 5)
        record["args"] = {"device": 0, "correlation": 5, "cuda_sync_kind": kind} | args
        return record

    trace = read(
        sync(1, "Stream Sync", stream=7),
        sync(3, "Stream Wait Event", stream=7, wait_on_stream=20,
             wait_on_cuda_event_record_corr_id=33, wait_on_cuda_event_id=1),
        sync(5, "Context Sync", stream=4294967295),
    )  # fmt: skip

    assert trace.events["stream"].tolist() == [7, 7, -1]
    assert trace.events["wait_stream"].tolist() == [7, 20, -1]
    assert trace.events["wait_event"].tolist() == [-1, 33, -1]


def test_device_annotations_take_their_lane_from_process_and_thread() -> None:
    """They have no arguments for it: the process id is the device, the thread id the stream."""
    trace = read(
        {
            "ph": "X",
            "cat": "gpu_user_annotation",
            "name": "x",
            "pid": 2,
            "tid": 7,
            "ts": 1,
            "dur": 3,
        }
    )

    assert list(
        trace.events[["device", "stream", "thread"]].itertuples(index=False, name=None)
    ) == [(2, 7, -1)]


def test_copies_are_called_memcpy_everywhere() -> None:
    """Names of older ROCm versions get the usual form."""
    named = device("gpu_memcpy", "CopyHostToDevice", 1, 1, 1)
    kinded = device("gpu_memcpy", "copy", 3, 1, 2)
    kinded["args"]["kind"] = "DtoD"
    usual = device("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 5, 1, 3)
    usual["args"]["bytes"] = 64
    trace = read(named, kinded, usual, device("gpu_memcpy", "odd", 7, 1, 4))

    assert trace.events["name"].tolist() == [
        "Memcpy HtoD (CopyHostToDevice)",
        "Memcpy DtoD (copy)",
        "Memcpy HtoD (Pinned -> Device)",
        "Memcpy Unknown (odd)",
    ]
    assert trace.events["bytes"][2] == 64.0


def test_allocations_carry_signed_bytes() -> None:
    """An instant named [memory] is an event of length 0; freed bytes are negative."""
    instant = {
        "ph": "i",
        "cat": "cpu_instant_event",
        "name": "[memory]",
        "pid": 9,
        "tid": 9,
        "s": "t",
    }
    trace = read(
        instant | {"ts": 1, "args": {"Bytes": 512}},
        instant | {"ts": 2, "args": {"Bytes": -512}},
        instant | {"ts": 3, "name": "other"},
    )

    assert column(trace, "bytes", "memory") == [512.0, -512.0]
    assert column(trace, "duration_ns", "memory") == [0, 0]


def test_resident_blocks_follow_from_registers_and_shared_memory() -> None:
    """65,536 registers hold four blocks of 256 threads at 64 registers; unknown needs stay NaN."""
    properties = {"id": 0, "name": "A100", "maxThreadsPerMultiprocessor": 2048,
                  "regsPerMultiprocessor": 65536, "sharedMemPerMultiprocessor": 167936,
                  "computeMajor": 8, "computeMinor": 0}  # fmt: skip
    root = base()
    root["deviceProperties"] = [properties]
    kernels(root["traceEvents"])[0]["args"] |= {"registers per thread": 64, "shared memory": 0}
    trace = read_kineto(text(root), "trace.json")
    resident = column(trace, "blocks_per_sm", "kernel")

    assert resident[0] == 4.0
    assert pd.isna(resident[1:]).all()


def test_named_threads_stay_apart() -> None:
    """Threads whose id is a name get distinct numbers."""
    trace = read(
        host("cpu_op", "a", 1, 1) | {"tid": "main"}, host("cpu_op", "b", 2, 1) | {"tid": "loader"}
    )

    assert trace.events["thread"].nunique() == 2
    assert (trace.events["thread"] > 0).all()


@pytest.mark.parametrize("case", [c for c in CASES if c.error is None], ids=lambda case: case.name)
def test_without_msgspec_the_result_is_the_same(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The standard library's decoder gives the same events and the same warnings."""
    path = case.write(tmp_path)
    fast = load(path)
    monkeypatch.setattr(decode, "msgspec", None)
    slow = load(path)

    pd.testing.assert_frame_equal(fast.events, slow.events)
    assert fast.meta == slow.meta
