"""Small odd files, each with what must become of it: warnings by name, or one error."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.support.recordings.bent import (
    append,
    base,
    bent,
    categories_of_2021,
    device,
    driver_call_inside,
    flow,
    host,
    ids_as_strings,
    kernels,
    launched_by,
    many_rows,
    one_graph_launch,
    replaced,
    set_all,
    set_kernel,
    sqlite_bytes,
    text,
    whole_microseconds,
    without,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@dataclass(frozen=True)
class Case:
    """One file: its bytes, and either the warnings it loads with or the error it ends in."""

    name: str
    content: Callable[[], bytes]
    warnings: dict[str, int] = field(default_factory=dict)
    error: str | None = None
    kernels: int = 12
    suffix: str = ".json"

    def write(self, folder: Path) -> Path:
        """Write the file into *folder* and return its path."""
        path = folder / f"{self.name}{self.suffix}"
        path.write_bytes(self.content())
        return path


INPUTS_OF_PEERS = (
    Case("as_is", bent()),
    Case("control_character", replaced(b"aten::mm", b"aten\x01::mm"), {"control_characters": 1}),
    Case("backslashes", replaced(b"aten::mm", rb"torch\cuda\x"), {"bad_escapes": 2}),
    Case("raw_quotes", replaced(b"aten::mm", b'say "mm" twice'), {"raw_quotes": 2}),
    Case("bad_utf8", replaced(b"aten::mm", b"\xff\xfeaten::mm"), {"bad_utf8": 2}),
    Case("cut_by_40_bytes", lambda: text(base())[:-40], {"truncated": 1}),
    Case(
        "huge_comms_id",
        bent(set_all("cpu_op", **{"Comms Id": 2**64 + 1, "Sequence number": 2**70})),
    ),
    Case("no_rank", lambda: text({"traceEvents": base()["traceEvents"]})),
    Case("no_profiler_step", bent(without(lambda e: "Step" in e["name"]))),
    Case(
        "kernel_never_stamped",
        bent(set_kernel(ts=0, dur=0)),
        {"zero_timestamp": 1, "launch_without_kernel": 1},
        kernels=11,
    ),
    Case("kernel_of_208_days", bent(set_kernel(dur=1.8e13)), {"absurd_duration": 1}),
    Case("kernel_before_launch", bent(set_kernel(ts=1022.937)), {"kernel_before_launch": 1}),
    Case("kernel_of_200_ns", bent(set_kernel(ts=1027.7, dur=0.2))),
    Case("graph_launch", bent(one_graph_launch), {"shared_correlation": 1}),
    Case("string_lanes", bent(set_all("kernel", tid="stream 7", pid="Spans"))),
    Case("stream_0", bent(set_all("kernel", stream=0, tid=0))),
    Case("hip", bent(launched_by(name="hipLaunchKernel"))),
    Case("driver_launch", bent(launched_by(name="cuLaunchKernelEx", cat="cuda_driver"))),
    Case("bare_list", lambda: text(base()["traceEvents"]), {"bare_list": 1}),
    Case("empty_list_of_events", lambda: text({"traceEvents": []}), error="it holds no events"),
    Case("many_rows", many_rows),
    Case(
        "dangling_arrows",
        bent(append(flow("s", 1), flow("f", 1), flow("f", 2), flow("s", 3))),
        {"dangling_flows": 2},
    ),
    Case(
        "no_runtime_at_all",
        bent(without(lambda e: e["cat"] != "kernel")),
        {"kernel_without_launch": 12},
    ),
    Case("old_nccl_name", bent(kernel="ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)")),
    Case(
        "new_nccl_name",
        bent(kernel="ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"),
    ),
)
"""The small inputs on which other tools were tried, and what each must become here."""

ODD_TRACES = (
    Case("categories_of_2021", bent(categories_of_2021)),
    Case("empty_json_list", lambda: b"[]", error="it holds no events"),
    Case("coinciding", bent(whole_microseconds), {"duplicate_events": 1, "coinciding_events": 1}),
    Case("nested_driver_call", bent(driver_call_inside), {"nested_calls": 1}),
    Case(
        "backlog",
        bent(append(device("kernel", "relu", 1000, 3, 7777))),
        {"kernel_without_launch": 1},
        kernels=13,
    ),
    Case(
        "lost_kernels",
        bent(lambda es: es.remove(kernels(es)[0])),
        {"launch_without_kernel": 1},
        kernels=11,
    ),
    Case("negative_length", bent(set_kernel(dur=-3)), {"negative_duration": 1}),
    Case("missing_length", bent(lambda es: kernels(es)[2].pop("dur")), {"missing_duration": 1}),
    Case("no_number_as_length", replaced(b'"dur": 9,', b'"dur": "long",'), {"missing_duration": 1}),
    Case(
        "nan_start",
        replaced(b'"ts": 1027.437', b'"ts": NaN'),
        {"bad_timestamp": 1, "launch_without_kernel": 1},
        kernels=11,
    ),
    Case(
        "negative_start",
        bent(set_kernel(ts=-5)),
        {"bad_timestamp": 1, "launch_without_kernel": 1},
        kernels=11,
    ),
    Case(
        "no_start",
        bent(lambda es: kernels(es)[2].pop("ts")),
        {"bad_timestamp": 1, "launch_without_kernel": 1},
        kernels=11,
    ),
    Case("ids_as_strings", bent(ids_as_strings)),
    Case(
        "nonsense_stream",
        bent(lambda es: kernels(es)[2]["args"].update(stream="main")),
        {"bad_number": 1},
    ),
    Case(
        "list_as_stream",
        bent(lambda es: kernels(es)[2]["args"].update(stream=[7])),
        {"bad_number": 1},
    ),
    Case(
        "null_arguments",
        bent(set_kernel(args=None)),
        {"kernel_without_launch": 1, "launch_without_kernel": 1},
    ),
    Case(
        "list_as_arguments",
        bent(set_kernel(args=[])),
        {"kernel_without_launch": 1, "launch_without_kernel": 1},
    ),
    Case("named_thread", bent(set_all("cpu_op", tid="main"))),
    Case("overlap_on_a_stream", bent(set_kernel(dur=12))),
    Case("kernel_reaching_a_second_too_far", bent(set_kernel(dur=1e6)), {"absurd_duration": 1}),
    Case("newline_in_name", replaced(b"aten::mm", b"aten\n::mm"), {"control_characters": 1}),
    Case(
        "trailing_commas",
        replaced(b'"schemaVersion": 1,', b'"x": [1, 2,], "schemaVersion": 1,'),
        {"trailing_commas": 1},
    ),
    Case("byte_order_mark", lambda: b"\xef\xbb\xbf" + text(base())),
    Case(
        "unfinished_range",
        bent(append({"ph": "B", "cat": "cpu_op", "name": "x", "ts": 1, "pid": 1, "tid": 1})),
        {"unfinished_ranges": 1},
    ),
    Case(
        "unknown_category",
        bent(append(host("rocprof_counter", "x", 1100, 1))),
        {"unknown_category": 1},
    ),
    Case("event_that_is_a_number", bent(append(3)), {"unreadable_events": 1}),  # type: ignore[arg-type]
    Case("unknown_phase", bent(append({"ph": "Z", "name": "x"}))),
    Case(
        "hopeless_event",
        replaced(b'"cat": "kernel"', b'"cat": : "kernel"'),
        {"unreadable_events": 1, "launch_without_kernel": 1},
        kernels=11,
    ),
    Case(
        "cut_after_the_events",
        lambda: json.dumps(base() | {"trace": "x" * 80}).encode()[:-40],
        {"truncated": 1},
    ),
    Case("cut_list", lambda: text(base()["traceEvents"])[:-40], {"bare_list": 1, "truncated": 1}),
    Case("leading_blank_lines", lambda: b"\n\n" + text(base())),
    Case(
        "quotes_beside_escapes",
        replaced(b"aten::mm", b'C:\\\\t\\q \\u00e9 "mm"'),
        {"bad_escapes": 1, "raw_quotes": 2},
    ),
    Case("gzip", lambda: gzip.compress(text(base())), suffix=".dat"),
    Case(
        "two_gzip_members",
        lambda: gzip.compress(text(base())[:500]) + gzip.compress(text(base())[500:]),
    ),
    Case(
        "cut_gzip",
        lambda: gzip.compress(text(base()), compresslevel=0)[:-400],
        {"truncated": 1, "launch_without_kernel": 1},
        kernels=11,
    ),
)
"""Data issues of the public recordings and of damaged files, all of them usable."""

REFUSED = (
    Case(
        "execution_trace",
        lambda: b'{"schema": "1.0.1", "nodes": []}',
        error="this is an execution trace",
    ),
    Case("other_json", lambda: b'{"a": 1}', error="holds no list 'traceEvents'"),
    Case(
        "another_timeline",
        lambda: text([host("backward-compute", "b", 1, 2)]),
        error="another tool's timeline",
    ),
    Case(
        "only_starts_below_zero",
        lambda: text([host("cpu_op", "b", -1, 2)]),
        error="no event has a usable start",
    ),
    Case("nested_too_deeply", lambda: b"[" * 100_000, error="nested too deeply"),
    Case("only_a_bracket", lambda: b"{", error="no complete JSON"),
    Case("cut_before_the_first_event", lambda: text(base())[:300], error="it holds no events"),
    Case("cut_list_without_events", lambda: b'[{"ph": "X", "na', error="no complete JSON"),
    Case("empty_file", lambda: b"", error="the file is empty"),
    Case("blank_file", lambda: b" \n ", error="the file is empty"),
    Case(
        "table_of_numbers",
        lambda: b"time,size\n1,2\n",
        error="neither JSON, SQLite nor Parquet",
        suffix=".csv",
    ),
    Case("zip_archive", lambda: b"PK\x03\x04rest", error="damaged archive", suffix=".zip"),
    Case(
        "damaged_gzip",
        lambda: gzip.compress(text(base()))[:30] + b"\0" * 90,
        error="damaged gzip file",
    ),
    Case(
        "other_database",
        lambda: sqlite_bytes("create table a (b)"),
        error="no export of Nsight Systems",
    ),
    Case(
        "damaged_database",
        lambda: sqlite_bytes("create table NVTX_EVENTS (start)")[:3000],
        error="damaged SQLite file",
    ),
    Case(
        "empty_export",
        lambda: sqlite_bytes("create table NVTX_EVENTS (start)"),
        error="holds no CUDA calls",
    ),
    Case(
        "words_for_numbers",
        lambda: sqlite_bytes(
            "create table NVTX_EVENTS (start, 'end')",
            "insert into NVTX_EVENTS values ('soon', 'late')",
        ),
        error="text where numbers belong",
    ),
    Case("other_parquet", lambda: b"PAR1" + b"\0" * 40 + b"PAR1", error="damaged Parquet file"),
    Case("parquet_in_gzip", lambda: gzip.compress(b"PAR1"), error="a Parquet file inside gzip"),
)
"""Files that are no usable trace; each error says what they are instead."""

CASES = INPUTS_OF_PEERS + ODD_TRACES + REFUSED
