"""A small Kineto trace and the ways in which the odd files of `malformed` bend it.

The base is two steps of six times `aten::mm` → `cudaLaunchKernel` → kernel on stream 7, each with
a device synchronisation at its end.
"""

from __future__ import annotations

import gzip
import json
import sqlite3
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

Event = dict[str, Any]


def base(first: float = 1000.437, kernel: str = "sgemm_128x64") -> dict[str, Any]:
    """Return the trace that the cases bend; times in µs."""
    events: list[Event] = []
    for step in range(2):
        begin = first + 100 * step
        events.append(host("user_annotation", f"ProfilerStep#{step}", begin, 95))
        for i in range(6):
            number = 6 * step + i
            at = begin + 1 + 10 * i
            events.append(host("cpu_op", "aten::mm", at, 8, {"External id": 100 + number}))
            events.append(launch("cudaLaunchKernel", at + 2, number + 1))
            events.append(device("kernel", kernel, at + 6, 9, number + 1))
        events.append(
            host("cuda_runtime", "cudaDeviceSynchronize", begin + 62, 8, {"correlation": 50 + step})
        )
    return {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "Tesla V100", "numSms": 80}],
        "distributedInfo": {"rank": 0, "world_size": 1},
        "traceEvents": events,
    }


def host(category: str, name: str, ts: float, dur: float, args: Event | None = None) -> Event:
    """Return an event of the main thread."""
    return {"ph": "X", "cat": category, "name": name, "pid": 9, "tid": 9,
            "ts": round(ts, 3), "dur": dur, "args": args or {}}  # fmt: skip


def launch(name: str, ts: float, correlation: int, category: str = "cuda_runtime") -> Event:
    """Return a call that puts something on a device."""
    return host(category, name, ts, 4, {"correlation": correlation})


def device(category: str, name: str, ts: float, dur: float, correlation: int) -> Event:
    """Return an event of stream 7 of device 0."""
    args = {"device": 0, "stream": 7, "correlation": correlation,
            "grid": [80, 1, 1], "block": [256, 1, 1]}  # fmt: skip
    return {"ph": "X", "cat": category, "name": name, "pid": 0, "tid": 7,
            "ts": round(ts, 3), "dur": dur, "args": args}  # fmt: skip


def text(root: Any) -> bytes:
    """Return *root* as Kineto lays it out."""
    return json.dumps(root, indent=1).encode()


def bent(*bend: Callable[[list[Event]], None], **parameters: Any) -> Callable[[], bytes]:
    """Return the writer of a base trace whose events *bend* has changed."""

    def write() -> bytes:
        root = base(**parameters)
        for change in bend:
            change(root["traceEvents"])
        return text(root)

    return write


def replaced(old: bytes, new: bytes) -> Callable[[], bytes]:
    """Return the writer of a base trace with the first *old* replaced in the text."""
    return lambda: text(base()).replace(old, new, 1)


def kernels(events: list[Event]) -> list[Event]:
    """Return the kernels among *events*."""
    return [e for e in events if e["cat"] == "kernel"]


def set_kernel(**fields: Any) -> Callable[[list[Event]], None]:
    """Return a bend that sets *fields* of the third kernel."""
    return lambda events: kernels(events)[2].update(fields)


def set_all(category: str, **fields: Any) -> Callable[[list[Event]], None]:
    """Return a bend that sets *fields* of every event of a category."""

    def bend(events: list[Event]) -> None:
        for event in events:
            if event["cat"] == category:
                event.update({k: v for k, v in fields.items() if k in event})
                event["args"].update({k: v for k, v in fields.items() if k not in event})

    return bend


def without(unwanted: Callable[[Event], bool]) -> Callable[[list[Event]], None]:
    """Return a bend that removes the *unwanted* events."""

    def bend(events: list[Event]) -> None:
        events[:] = [event for event in events if not unwanted(event)]

    return bend


def launched_by(**fields: str) -> Callable[[list[Event]], None]:
    """Return a bend that sets *fields* of every launch."""

    def bend(events: list[Event]) -> None:
        for event in events:
            if "Launch" in event["name"]:
                event.update(fields)

    return bend


def append(*more: Event) -> Callable[[list[Event]], None]:
    """Return a bend that appends events."""
    return lambda events: events.extend(more)


def one_graph_launch(events: list[Event]) -> None:
    """Let one `cudaGraphLaunch` put all six kernels of the second step on the device."""
    calls = [e for e in events if e["name"] == "cudaLaunchKernel"][6:]
    calls[0]["name"] = "cudaGraphLaunch"
    for call in calls[1:]:
        events.remove(call)
    for node, kernel in enumerate(kernels(events)[6:]):
        kernel["args"] |= {"correlation": 7, "graph node id": 40 + node}


def categories_of_2021(events: list[Event]) -> None:
    """Write categories, thread ids and external ids as in 2021."""
    old = {"cpu_op": "Operator", "cuda_runtime": "Runtime", "kernel": "Kernel",
           "user_annotation": "Operator"}  # fmt: skip
    for event in events:
        event["cat"] = old[event["cat"]]
        event["tid"] = "stream 7" if event["cat"] == "Kernel" else "5555"
        if event["cat"] == "Kernel":
            event["args"]["external id"] = 100
        event["ts"], event["dur"] = round(event["ts"]), round(event["dur"])
    for kernel in [e for e in events if e["cat"] == "Kernel"][:3]:
        kernel["dur"] = 0


def whole_microseconds(events: list[Event]) -> None:
    """Let two calls and two operators coincide, and add an exact copy of one."""
    events += [
        host("cuda_runtime", "cudaGetDevice", 1080, 0, {"correlation": 70}),
        host("cuda_runtime", "cudaGetDevice", 1080, 0, {"correlation": 71}),
        host("cuda_runtime", "cudaGetDevice", 1080, 0, {"correlation": 71}),
    ]


def driver_call_inside(events: list[Event]) -> None:
    """Let a `cuLaunchKernel` within the third launch carry the correlation."""
    call = [e for e in events if e["name"] == "cudaLaunchKernel"][2]
    events.append(launch("cuLaunchKernel", call["ts"] + 1, 900, "cuda_driver") | {"dur": 2})
    kernels(events)[2]["args"]["correlation"] = 900


def ids_as_strings(events: list[Event]) -> None:
    """Write the ids of kernels as strings."""
    for kernel in kernels(events):
        for name in ("correlation", "stream", "device"):
            kernel["args"][name] = str(kernel["args"][name])


def many_rows() -> bytes:
    """Return 33,000 operators around correlations that fit into 15 bits."""
    root = base()
    for i in range(33_000):
        root["traceEvents"].append(host("cpu_op", "aten::add", 3000 + i, 0.5, {"External id": i}))
    return json.dumps(root).encode()


def flow(phase: str, number: int) -> Event:
    """Return one end of an arrow."""
    return {
        "ph": phase,
        "id": number,
        "pid": 9,
        "tid": 9,
        "ts": 1000,
        "cat": "ac2g",
        "name": "ac2g",
    }


def gzip_bomb() -> bytes:
    """Return 20 MB of spaces, compressed."""
    return gzip.compress(b" " * 20_000_000)


def sqlite_bytes(*statements: str) -> bytes:
    """Return a database after *statements*."""
    connection = sqlite3.connect(":memory:")
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    content = connection.serialize()
    connection.close()
    return content
