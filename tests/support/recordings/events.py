"""Recordings written down event by event: rows in, a `Trace` out. All times in µs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from foretrace.graph.build import build
from foretrace.graph.infer.events import select_events
from foretrace.graph.infer.tasks.device_tasks import collect_device_tasks
from foretrace.graph.infer.tasks.host_tasks import cut_host_tasks
from foretrace.graph.model import Rules
from foretrace.replaying.replay import replay
from foretrace.tracer.trace import EVENT_COLUMNS, Device, Trace, TraceMeta
from foretrace.util.schema import table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from foretrace.graph.infer.events import Events
    from foretrace.graph.infer.tasks.device_tasks import DeviceTasks
    from foretrace.graph.infer.tasks.host_tasks import HostTasks
    from foretrace.graph.model import Graph

Row = dict[str, Any]
A100 = Device(0, "NVIDIA A100-SXM4-40GB", sm_count=108)
META = TraceMeta(format="kineto", source="tiny.json", devices=(A100,))
MULTI_FETCH = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def span(kind: str, name: str, start: float, length: float, **more: Any) -> Row:
    """Return one interval of the host's thread 1; *more* are columns of the trace."""
    times = {"start_ns": round(start * 1_000), "duration_ns": round(length * 1_000)}
    return {"kind": kind, "name": name, "thread": 1, **times, **more}


def op(name: str, start: float, length: float, **more: Any) -> Row:
    """Return an operator."""
    return span("op", name, start, length, **more)


def note(name: str, start: float, length: float, **more: Any) -> Row:
    """Return an annotation."""
    return span("annotation", name, start, length, **more)


def call(
    start: float,
    length: float,
    correlation: int = -1,
    *,
    name: str = "cudaLaunchKernel",
    **more: Any,
) -> Row:
    """Return an API call."""
    return span("runtime", name, start, length, correlation=correlation, **more)


def sync(start: float, end: float, *, name: str = "cudaDeviceSynchronize", **more: Any) -> Row:
    """Return a synchronisation from *start* to *end*."""
    return call(start, end - start, name=name, **more)


def kernel(
    start: float, length: float, correlation: int, *, name: str = "gemm", **more: Any
) -> Row:
    """Return a kernel on stream 7 of device 0."""
    place = {"thread": -1, "device": 0, "stream": 7, "correlation": correlation}
    return span("kernel", name, start, length, **{**place, **more})


def copy(start: float, length: float, correlation: int, direction: str, **more: Any) -> Row:
    """Return a memcpy on stream 7 of device 0; *direction* as in "HtoD (Pageable -> Device)"."""
    row = kernel(start, length, correlation, **more)
    return {**row, "kind": "memcpy", "name": f"Memcpy {direction}"}


def steps(
    count: int, length: float, rows: Iterable[Row], *, name: str = "ProfilerStep#"
) -> list[Row]:
    """Repeat *rows* every *length*, each time under a step annotation; ids stay distinct."""
    once = list(rows)
    ids = max((row.get("correlation", -1) for row in once), default=0) + 1
    every = [note(f"{name}{number}", number * length, length) for number in range(count)]
    every += [later(row, number * length, number * ids) for number in range(count) for row in once]
    return every


def later(row: Row, delay: float, ids: int = 0) -> Row:
    """Return *row* moved by *delay*; its correlation ids grow by *ids*."""
    moved = {**row, "start_ns": row["start_ns"] + round(delay * 1_000)}
    for column in ("correlation", "wait_event"):
        if row.get(column, -1) >= 0:
            moved[column] = row[column] + ids
    return moved


def trace(rows: Iterable[Row], **meta: Any) -> Trace:
    """Return the recording of *rows*; *meta* are fields of `TraceMeta`."""
    given = sorted(rows, key=lambda r: (r.get("rank", 0), r["start_ns"], -r["duration_ns"]))
    columns = [c for c in EVENT_COLUMNS if any(c.name in row for row in given)]
    empty = {"category": None, "float64": np.nan}
    values = {
        column.name: [row.get(column.name, empty.get(column.dtype, -1)) for row in given]
        for column in columns
    }
    values["rank"] = [row.get("rank", 0) for row in given]
    events = table(EVENT_COLUMNS, values, len(given))
    return Trace(events, replace(META, **meta))


def scaled(graph: Graph, factor: float, *kinds: str) -> Graph:
    """Return *graph* with the work of tasks of *kinds* (kernels if none are given) scaled."""
    chosen = graph.tasks["kind"].isin(kinds or ("kernel",)).to_numpy()
    work = graph.tasks["work_ns"].to_numpy()
    changed = np.where(chosen, np.rint(work * factor), work).astype(np.int64)
    return replace(graph, tasks=graph.tasks.assign(work_ns=changed))


def step_ms(recording: Trace, factor: float = 1.0, **off: bool) -> float:
    """Replay *recording* with kernels *factor* times as long; *off* switches rules: name=False."""
    graph = build(recording, rules=Rules(**off))
    return replay(scaled(graph, factor)).step_ns / 1e6


def parsed(
    rows: Iterable[Row], markers: Iterable[int] = ()
) -> tuple[Events, HostTasks, DeviceTasks]:
    """Return events, host tasks and device tasks of *rows*; *markers* are rows sorted by start."""
    events = select_events(trace(rows).events)
    host = cut_host_tasks(events, np.array(list(markers), np.int64))
    return events, host, collect_device_tasks(events, host)


def microseconds(values: Iterable[int]) -> list[float]:
    """Return ns as µs."""
    return [value / 1_000 for value in values]
