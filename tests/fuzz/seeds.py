"""Sound small files of every kind that is read: what mutants are made of."""

from __future__ import annotations

import io
import json
import lzma
import tarfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from foretrace.batch.rows import Row, write_rows
from foretrace.tracer.readers.load import load, save
from foretrace.transforms.cluster.cost_tables import CostEntry, make_table, write_table
from tests.support.recordings.bent import base, device, host, launch
from tests.support.recordings.calibrations import entries, file_of
from tests.support.recordings.kineto import small_trace
from tests.support.recordings.nsight import (
    KERNEL,
    MEMCPY,
    RUNTIME,
    SYNC,
    call,
    copy,
    export,
    kernel,
    strings,
    sync,
)
from tests.support.recordings.operation_timeline import job

LENGTHS = {
    "params-all-gather": 5.0, "forward-compute": 100.0, "backward-compute": 200.0,
    "forward-send": 5.0, "forward-recv": 5.0, "backward-send": 5.0, "backward-recv": 5.0,
    "grads-reduce-scatter": 20.0, "optimizer": 30.0,
}  # fmt: skip
SCENARIO = """
[[transform]]
name = "faster_kernels"
pattern = "gemm|conv"
speedup = 2.0

[[transform]]
name = "amp"
dtype = "bf16"
"""
CLUSTER = """
name = "two boxes"
device = "V100-SXM2"
transport = "tcp"
devices = ["a", "b"]
machines = 2
sources = { memo = "a memo" }

[links.nvlink]
medium = "nvlink"
gb_per_s = { value = 25, source = "memo" }
latency_ns = 700

[links.ether]
medium = "network"
gb_per_s = 1.25
latency_ns = 20000
efficiency = 0.9

[[wire]]
link = "nvlink"
count = 2
pairs = [["a", "b"]]

[[level]]
name = "switch"
machines = 2
uplink = "ether"
"""
STUDY = """
scenarios = ["amp", ["batch_size(n=64)", "faster_host(speedup=2)"]]

[[trace]]
path = "*.json.gz"
model = "mlp"

[[pair]]
before = "a.parquet"
scenario = "faster_host(speedup=2)"
after_ms = 3.5
"""
LOSSES = "\n".join(
    f"epoch {step // 10} step {step} loss {3 / (1 + step / 20):.4f} lr 0.001" for step in range(40)
)
STEPS = "\n".join(f"step {step} of 40: {12 + step % 3}.5 ms/it" for step in range(40))
NCCL = """# nThread 1 nGpus 4 minBytes 8 maxBytes 134217728
#  Rank  0 Group  0 Pid 1 on host device  0 [0x07] Tesla V100-SXM2-16GB
#  Rank  1 Group  0 Pid 1 on host device  1 [0x0a] Tesla V100-SXM2-16GB
# all_reduce_perf
#       size         count      type   redop    root     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)
     1048576        262144     float     sum      -1    63.02   16.64   16.64      0
     2097152        524288     float     sum      -1    98.02   21.40   21.40      0
"""


@cache
def seeds() -> dict[str, bytes]:
    """Return the content of a sound file by its kind; the part before a dash says who reads it."""
    files = {
        "trace-kineto": _json(_described(small_trace())),
        "trace-begin-end": _json(_begin_end()),
        "trace-processes": _json(_two_processes()),
        "trace-nsight": _nsight(),
        "trace-timeline": _json(job(LENGTHS, stages=2, micro_batches=3, steps=3)),
        "calibration": file_of(
            entries(
                [("aten::mm", "[]", 4e4), ("aten::relu", "[]", 3e4)],
                {"amp": [("aten::mm", "[]", 2e4, 0), ("aten::relu", "[]", 2e4, 1)]},
                {("optimizer", ""): 3e4},
            )
        ),
        "scenario": SCENARIO.encode(),
        "cluster": CLUSTER.encode(),
        "study": STUDY.encode(),
        "log-losses": LOSSES.encode(),
        "log-steps": STEPS.encode(),
        "log-array": _array(),
        "nccl-log": NCCL.encode(),
    }
    with TemporaryDirectory() as name:
        folder = Path(name)
        files["trace-parquet"] = _parquet(folder)
        write_rows(folder / "rows.parquet", [_row(key) for key in ("a" * 32, "b" * 32)])
        files["results"] = (folder / "rows.parquet").read_bytes()
        entry = CostEntry("V100-SXM2", "", "all_reduce", 4, 1 << 20, 6e4)
        write_table(
            make_table([entry, entry._replace(bytes=1 << 21, ns=9e4)]), folder / "t.parquet"
        )
        files["costs"] = (folder / "t.parquet").read_bytes()
    files["archive"] = tar_of(pair_members(files))
    return files


def pair_members(files: dict[str, bytes]) -> dict[str, bytes]:
    """Return the files of an archive with two pairs."""
    recording = lzma.compress(files["trace-kineto"], preset=0)
    side = {"facts": facts(), "mean_ns": 970_000, "step_ns": [970_000] * 3}
    members = {}
    for change, scenario in (("fused", "faster_host(speedup=2)"), ("amp", "amp")):
        pair = {
            "model": "mlp", "change": change, "scenario": scenario, "device": "cuda",
            "hardware": "A100", "noise": 0.01,
            "before": {**side, "trace": f"{change}.before.json"},
            "after": {**side, "trace": f"{change}.after.json"},
        }  # fmt: skip
        members[f"mlp/{change}.pair.json"] = _json(pair)
        for name in ("before", "after"):
            members[f"mlp/{change}.{name}.json.xz"] = recording
    members["mlp/amp.calibration.parquet"] = files["calibration"]
    return members


def tar_of(members: dict[str, bytes]) -> bytes:
    """Return an archive of *members*."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name, inside in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(inside)
            archive.addfile(entry, io.BytesIO(inside))
    return content.getvalue()


def facts() -> dict[str, Any]:
    """Return what the recorder says of a job."""
    return {
        "framework": "torch 2.13.0", "command": "train.py", "batch_size": 32,
        "optimizer": {"name": "Adam", "kind": "loop", "parameters": 1000, "tensors": 4,
                      "bytes": 4000, "state_passes": 7},
        "loader": {"workers": 2, "prefetch": 2, "load_ns": 1e5, "cpu_share": 0.5,
                   "batch_bytes": 4096},
        "machine": {"cores": 2, "threads": 2, "cpu": "x", "memory_bytes": 1 << 34,
                    "fp32_gflops": 50.0, "bf16_gflops": 90.0, "copy_gbps": 10.0,
                    "products": {"linear": {"fp32": [[64, 40.0]], "bf16": [[64, 70.0]]}}},
        "unprofiled_step_ns": [970_000, 980_000, 960_000],
        "profiled_step_ns": [990_000, 1_000_000, 995_000],
        "warnings": {"page_faults": 3},
        "extra": {"job": "mlp", "parameters": [["fc.weight", [10, 100], 4]], "buffers": []},
    }  # fmt: skip


def _json(content: Any) -> bytes:
    return json.dumps(content).encode()


def _described(trace: dict[str, Any]) -> dict[str, Any]:
    """Give operators shapes and types, and the job a distributed one."""
    for event in trace["traceEvents"]:
        if event["cat"] == "cpu_op":
            shapes = {"Input Dims": [[32, 100], [100, 10]], "Input type": ["float", "float"]}
            event["args"] = {**event.get("args", {}), **shapes, "Sequence number": 3}
    return trace | {"distributedInfo": {"rank": 0, "world_size": 2, "backend": "nccl"}}


def _begin_end() -> dict[str, Any]:
    trace = base()
    events = []
    for event in trace["traceEvents"]:
        if event["cat"] == "user_annotation":
            end = {**event, "ph": "E", "ts": event["ts"] + event.pop("dur")}
            events += [{**event, "ph": "B"}, {k: v for k, v in end.items() if k != "dur"}]
        else:
            events.append(event)
    return {**trace, "traceEvents": events}


def _two_processes() -> dict[str, Any]:
    events = []
    for rank in range(2):
        for step in range(3):
            at = 1000.0 + 200 * step + rank
            place = {"pid": f"rank {rank}: 9"}
            number = 100 * rank + 10 * step
            annotation = host("user_annotation", f"ProfilerStep#{step}", at, 190)
            calls = [launch("cudaLaunchKernel", at + 20 * i, number + i) for i in range(4)]
            work = [device("kernel", "ncclDevKernel_AllReduce_Sum", at + 20 * i + 6, 9, number + i)
                    for i in range(4)]  # fmt: skip
            events += [{**event, **place} for event in (annotation, *calls)]
            events += [{**event, "pid": f"rank {rank}: 0"} for event in work]
    return {"traceEvents": events}


def _nsight() -> bytes:
    calls = [call(1, 100 * i, 100 * i + 50, i) for i in range(9)]
    kernels = [kernel(100 * i + 60, 100 * i + 90, i) for i in range(8)]
    ranges = [
        {"start": 300 * i, "end": 300 * i + 290, "eventType": 59, "text": f"step {i}",
         "textId": None, "globalTid": calls[0]["globalTid"]}
        for i in range(3)
    ]  # fmt: skip
    gpu = {"id": 0, "name": "Tesla V100", "smCount": 80, "totalMemory": 1 << 34,
           "maxWarpsPerSm": 64, "threadsPerWarp": 32, "maxRegistersPerSm": 65536,
           "maxShmemPerSm": 98304, "computeMajor": 7, "computeMinor": 0}  # fmt: skip
    return export(
        StringIds=strings(),
        NVTX_EVENTS=ranges,
        TARGET_INFO_GPU=[gpu],
        TARGET_INFO_SESSION_START_TIME=[{"utcEpochNs": 1_600_000_000_000_000_000}],
        META_DATA_CAPTURE=[{"name": "PROCESS_0:COMMAND", "value": "python"}],
        **{RUNTIME: calls, KERNEL: kernels, SYNC: [sync(850, 960, 10, 7, 4)],
           MEMCPY: [copy(860, 890, 8, (1, 0, 2))]},
    )  # fmt: skip


def _parquet(folder: Path) -> bytes:
    path = folder / "t.json"
    path.write_bytes(_json(_described(small_trace())))
    trace = load(path)
    told = facts()
    meta = replace(
        trace.meta,
        **{name: told[name] for name in ("framework", "command", "batch_size", "optimizer",
                                         "loader", "machine", "warnings")},
        unprofiled_step_ns=tuple(told["unprofiled_step_ns"]),
        profiled_step_ns=tuple(told["profiled_step_ns"]),
        extra=trace.meta.extra | told["extra"],
    )  # fmt: skip
    return save(replace(trace, meta=meta), folder / "t.parquet").read_bytes()


def _row(key: str) -> Row:
    return Row(
        key, "0.1.0+abc", "mlp", "mlp", "amp", "amp", "gpu", 1e6, 1e6, 5e5, 4e5, 6e5, 1.0,
        "unvalidated", 5.1e5, 6e5, 0.01, '[{"code": "a", "text": "b", "place": ""}]',
    )  # fmt: skip


def _array() -> bytes:
    content = io.BytesIO()
    np.save(content, 3 / (1 + np.arange(40) / 20))
    return content.getvalue()


def parquet_parts(content: bytes) -> tuple[pa.Table, dict[bytes, bytes]]:
    """Return the table and the metadata of a file of Parquet."""
    table = pq.read_table(io.BytesIO(content))
    return table, dict(table.schema.metadata or {})
