"""A run in, what `torch.profiler` would have written of a few steps of it: Kineto's JSON.

The profiler starts just before the first step of the window and stops after the last: work of the
device that was launched earlier appears without its call. At the stop it waits for the device, or,
as old versions did, it does not, and what still runs then is lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from tests.counterfactual.runtime import AUTOGRAD

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.counterfactual.device import Task
    from tests.counterfactual.host import Host, Span
    from tests.counterfactual.runtime import Call
    from tests.counterfactual.simulate import Run

EPOCH_NS = 4_211_000_000
"""Where the clock of the recording stands when the program starts."""
LEAD_NS = 2_000
"""From the profiler's start to the first step."""
CBIDS = {
    "cudaLaunchKernel": 211,
    "cudaLaunchKernelExC": 430,
    "cudaMemcpyAsync": 41,
    "cudaMemsetAsync": 51,
    "cudaGraphLaunch": 311,
    "cudaEventRecord": 135,
    "cudaStreamWaitEvent": 147,
    "cudaEventSynchronize": 137,
    "cudaStreamSynchronize": 131,
    "cudaDeviceSynchronize": 165,
}
SYNC_KINDS = {
    "cudaStreamWaitEvent": "Stream Wait Event",
    "cudaEventSynchronize": "Event Sync",
    "cudaStreamSynchronize": "Stream Sync",
    "cudaDeviceSynchronize": "Context Sync",
}
CATEGORIES = {"collective": "kernel"}
NO_STREAM = 4_294_967_295


@dataclass(frozen=True, slots=True)
class Style:
    """What a profiler's version and settings leave out, and which steps it saw."""

    first: int = 24
    steps: int = 4
    sync_events: bool = True
    event_records: bool = True
    whole_us: bool = False
    drained: bool = True
    first_rank_only: bool = False

    @property
    def window(self) -> range:
        """The recorded steps."""
        return range(self.first, self.first + self.steps)


def write_recordings(run: Run, style: Style, folder: Path) -> list[Path]:
    """Write one file per recorded rank into *folder*."""
    paths = []
    for host in run.hosts[:1] if style.first_rank_only else run.hosts:
        path = folder / f"rank{host.rank}.json"
        path.write_bytes(msgspec.json.encode(recording(host, style)))
        paths.append(path)
    return paths


def recording(host: Host, style: Style) -> dict[str, Any]:
    """Return the recording of one rank."""
    device = {"id": host.rank, "name": "NVIDIA A100-SXM4-80GB", "computeMajor": 8, "numSms": 108}
    device |= {"computeMinor": 0, "totalGlobalMem": 85_198_045_184, "warpSize": 32}
    content: dict[str, Any] = {
        "schemaVersion": 1,
        "deviceProperties": [device],
        "cuda_runtime_version": 12_040,
        "displayTimeUnit": "ms",
        "traceName": f"rank{host.rank}.json",
    }
    if host.program.ranks > 1:
        content["distributedInfo"] = {
            "backend": "nccl",
            "rank": host.rank,
            "world_size": host.program.ranks,
        }
    content["traceEvents"] = list(_Writer(host, style).events())
    return content


class _Writer:
    """Turns what one host did into events of the window."""

    def __init__(self, host: Host, style: Style) -> None:
        self.host, self.style = host, style
        self.pid = 4_242 + host.rank
        self.begin = host.begins[style.first] - LEAD_NS
        self.stop = host.ends[style.window[-1]]

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield every event, as Kineto orders them: host, device, flows, metadata."""
        tasks = list(self._tasks())
        yield from self._metadata({task.stream for task in tasks})
        for number in self.style.window:
            times = (self.host.begins[number], self.host.ends[number])
            name = f"ProfilerStep#{number}"
            yield self._range(name, "user_annotation", 0, *times, 900_000 + number)
        for span in self.host.spans:
            if span.step in self.style.window:
                yield self._span(span)
        for call in self.host.calls:
            if call.step in self.style.window:
                yield from self._call(call)
        yield from self._final_sync(tasks)
        for task in tasks:
            yield self._task(task)
            yield self._flow("f", task.correlation, self.host.rank, task.stream, task.start)

    def _tasks(self) -> Iterator[Task]:
        """Yield the device work that the profiler sees."""
        for task in self.host.tasks:
            is_kept = self.style.drained or task.end <= self.stop
            if is_kept and task.step <= self.style.window[-1] and task.end > self.begin:
                yield task

    def _us(self, ns: int) -> float:
        return ns // 1_000 if self.style.whole_us else ns / 1_000

    def _lasting(self, start: int, end: int) -> dict[str, float]:
        begin = self._us(EPOCH_NS + start)
        return {"ts": begin, "dur": self._us(end - start)}

    def _on_host(self, thread: int) -> dict[str, int]:
        return {"pid": self.pid, "tid": self.pid + 101 * thread}

    def _range(
        self, name: str, category: str, thread: int, start: int, end: int, external: int
    ) -> dict[str, Any]:
        return {
            "ph": "X",
            "cat": category,
            "name": name,
            **self._on_host(thread),
            **self._lasting(start, end),
            "args": {"External id": external},
        }

    def _span(self, span: Span) -> dict[str, Any]:
        event = self._range(*span[:6])
        if span.sequence >= 0:
            event["args"]["Sequence number"] = 10_000 * span.step + span.sequence
            event["args"]["Fwd thread id"] = 1 if span.thread == AUTOGRAD else 0
        return event

    def _call(self, call: Call) -> Iterator[dict[str, Any]]:
        if call.name == "cudaEventRecord" and not self.style.event_records:
            return
        args = {"External id": call.external, "cbid": CBIDS[call.name]}
        yield {
            "ph": "X",
            "cat": "cuda_runtime",
            "name": call.name,
            **self._on_host(call.thread),
            **self._lasting(call.start, call.end),
            "args": {**args, "correlation": call.correlation},
        }
        tid = self.pid + 101 * call.thread
        yield self._flow("s", call.correlation, self.pid, tid, call.start)
        if self.style.sync_events and call.name in SYNC_KINDS:
            yield self._sync_event(call)

    def _sync_event(self, call: Call) -> dict[str, Any]:
        kind = SYNC_KINDS[call.name]
        on_stream = kind in {"Stream Sync", "Stream Wait Event"}
        args: dict[str, Any] = {"External id": call.external, "cuda_sync_kind": kind}
        if call.mark is not None:
            args["wait_on_stream"] = call.mark.stream
            args["wait_on_cuda_event_record_corr_id"] = call.mark.correlation
            args["wait_on_cuda_event_id"] = call.mark.number
        args["stream"] = call.stream if on_stream else NO_STREAM
        args |= {"correlation": call.correlation, "device": self.host.rank, "context": 1}
        return {
            "ph": "X",
            "cat": "cuda_sync",
            "name": kind,
            "pid": self.host.rank,
            "tid": call.stream if on_stream else -1,
            **self._lasting(call.start + 300, max(call.end - 300, call.start + 301)),
            "args": args,
        }

    def _final_sync(self, tasks: list[Task]) -> Iterator[dict[str, Any]]:
        """Yield the wait in which the profiler stops."""
        if not self.style.drained:
            return
        lag = self.host.machine.sync_lag_ns
        done = max((task.end for task in tasks), default=self.stop)
        yield {
            "ph": "X",
            "cat": "cuda_runtime",
            "name": "cudaDeviceSynchronize",
            **self._on_host(0),
            **self._lasting(self.stop + 5_000, max(done + lag, self.stop + 8_000)),
            "args": {"cbid": CBIDS["cudaDeviceSynchronize"], "correlation": 99_999_999},
        }

    def _task(self, task: Task) -> dict[str, Any]:
        args: dict[str, Any] = {
            "External id": task.external,
            "device": self.host.rank,
            "context": 1,
            "stream": task.stream,
            "correlation": task.correlation,
        }
        if task.kind in {"gpu_memcpy", "gpu_memset"}:
            args["bytes"] = task.size
            args["memory bandwidth (GB/s)"] = task.size / max(task.end - task.start, 1)
        else:
            args |= {"queued": 0, "registers per thread": 32, "shared memory": 0}
            args |= {"grid": [432, 1, 1], "block": [256, 1, 1], "est. achieved occupancy %": 50}
        if task.kind == "collective":
            ranks = list(range(self.host.program.ranks))
            args |= {"Collective name": "allreduce", "dtype": "Float", "Group size": len(ranks)}
            args |= {"In msg nelems": task.size // 4, "Out msg nelems": task.size // 4}
            args |= {"Process Group Name": "0", "Process Group Ranks": str(ranks)}
        return {
            "ph": "X",
            "cat": CATEGORIES.get(task.kind, task.kind),
            "name": task.name,
            "pid": self.host.rank,
            "tid": task.stream,
            **self._lasting(task.start, task.end),
            "args": args,
        }

    def _flow(self, phase: str, number: int, pid: int, tid: int, time: int) -> dict[str, Any]:
        where = {"ph": phase, "id": number, "pid": pid, "tid": tid, "ts": self._us(EPOCH_NS + time)}
        where |= {"cat": "ac2g", "name": "ac2g"}
        return {**where, "bp": "e"} if phase == "f" else where

    def _metadata(self, streams: set[int]) -> Iterator[dict[str, Any]]:
        """Yield the names of processes and threads."""
        host = self.host
        for pid, label in ((self.pid, "CPU"), (host.rank, f"GPU {host.rank}")):
            about = {"ph": "M", "ts": self._us(EPOCH_NS), "pid": pid, "tid": 0}
            yield {**about, "name": "process_name", "args": {"name": "python"}}
            yield {**about, "name": "process_labels", "args": {"labels": label}}
        for thread, label in ((0, "python"), (AUTOGRAD, "pt_autograd_0")):
            where = {"ph": "M", "ts": self._us(EPOCH_NS), **self._on_host(thread)}
            yield {**where, "name": "thread_name", "args": {"name": f"thread {label}"}}
        for stream in sorted(streams):
            where = {"ph": "M", "ts": self._us(EPOCH_NS), "pid": host.rank, "tid": stream}
            yield {**where, "name": "thread_name", "args": {"name": f"stream {stream}"}}
