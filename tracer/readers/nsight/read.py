"""Read SQLite exports of Nsight Systems (schemas 3.7 to 3.16); every table is optional."""

from __future__ import annotations

import re
import sqlite3
from typing import Any

import numpy as np

from foretrace.errors import TraceError
from foretrace.tracer.data_issues import Tally
from foretrace.tracer.readers.columns import (
    categorical,
    cut_name,
    no_stream,
    recode,
)
from foretrace.tracer.readers.normalize import finish
from foretrace.tracer.readers.nsight.clocks import lost_steps, realign
from foretrace.tracer.readers.nsight.database import (
    ACTIVITY,
    Database,
    command,
    devices,
    limits,
    number_devices,
    session_start,
    text,
)
from foretrace.tracer.readers.nsight.parts import Part, join_parts
from foretrace.tracer.readers.nsight.syncs import find_recorded_events, name_sync
from foretrace.tracer.readers.occupancy import add_resident_blocks
from foretrace.tracer.trace import EVENT_KINDS, Trace, TraceMeta

COPY_KINDS = {1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA",
              8: "DtoD", 9: "HtoH", 10: "PtoP", 11: "HtoD", 12: "DtoH", 13: "DtoD"}  # fmt: skip
MEMORY_KINDS = {0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array", 4: "Managed",
                5: "Device", 6: "Managed"}  # fmt: skip
RANGE_EVENTS = (59, 60)
"""NvtxPushPopRange and NvtxStartEndRange."""
VERSION_SUFFIX = re.compile(r"_v\d+$")
OF_EXPORT = ("META_DATA_", "TARGET_INFO_", "ENUM_NSYS_", "OSRT_API")
"""How tables of every export begin, whatever was traced."""
ADVICE = "profile with nsys profile -t cuda,nvtx"
BYTE = 0xFF
ON_DEVICE = ("start", "end", "deviceId", "contextId", "streamId", "correlationId", "graphNodeId",
             "globalPid")  # fmt: skip


def read_nsight(raw: bytes, source: str, on_disk: int = 0) -> Trace:
    """Turn an SQLite export into a trace; each process with device work becomes a rank.

    Parameters
    ----------
    raw
        The uncompressed file.
    source
        Its name, for messages.
    on_disk
        How many bytes the file took, by which its tables are bounded.

    Raises
    ------
    TraceError
        If it is damaged, no export of Nsight Systems, or holds no events.
    """
    connection = sqlite3.connect(":memory:")
    try:
        connection.deserialize(raw)
        return _read(Database(connection, source, on_disk or len(raw)), source, Tally())
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise TraceError(f"{source}: damaged SQLite file ({error}); export it again") from error
    finally:
        connection.close()


def _read(database: Database, source: str, tally: Tally) -> Trace:
    if not any(t.startswith(ACTIVITY) or t == "NVTX_EVENTS" for t in database.tables):
        if any(t.startswith(OF_EXPORT) for t in database.tables):
            raise TraceError(f"{source}: an export of Nsight Systems without CUDA calls; {ADVICE}")
        if any(t.startswith("rocpd") for t in database.tables):
            raise TraceError(f"{source}: a database of rocprof; record with torch.profiler")
        raise TraceError(f"{source}: an SQLite file, but no export of Nsight Systems")
    rows = database.rows("StringIds", "id", "value")
    strings = {number: cut_name(text(value)) for number, value in rows if type(number) is int}
    calls, kernels = _calls(database, strings), _kernels(database, strings)
    parts = [
        calls,
        kernels,
        _graphs(database, kernels, tally),
        _copies(database),
        _memsets(database),
        _syncs(database, calls),
        _ranges(database, strings, tally),
        _overhead(database, strings),
    ]
    values = join_parts(parts, source)
    if not len(values["start_ns"]):
        raise TraceError(
            f"{source}: the export holds no CUDA calls, kernels or NVTX ranges; {ADVICE}"
        )
    first = int(values["start_ns"].min())
    values["start_ns"] = values["start_ns"] - first
    ranks = _set_ranks(values)
    used = np.unique(values["device"][values["device"] >= 0]).tolist()
    index = number_devices(database, used)
    add_resident_blocks(values, limits(database, index))
    extra: dict[str, Any] = {"own_rank": len(ranks) > 1}
    if shift := realign(values, tally):
        extra["clock_shift_ns"] = shift
    if lost := lost_steps(values, tally):
        extra["lost_steps"] = lost
    least = min(int(values["start_ns"].min()), 0)
    values["start_ns"] = values["start_ns"] - least
    frame, moved = finish(values, source, tally)
    extra["origin_ns"] = first + least + moved + session_start(database)
    meta = TraceMeta(
        format="nsight",
        source=source,
        devices=devices(database, index),
        ranks=ranks,
        world_size=len(ranks) if len(ranks) > 1 else None,
        command=command(database),
        warnings=tally.counts(),
        extra=extra,
    )
    return Trace(frame, meta)


def _part(kind: str, name: Any, table: dict[str, np.ndarray], **columns: Any) -> Part:
    """Return the columns of one table under our names."""
    part: Part = {"name": name, "kind": EVENT_KINDS.index(kind)}
    part["start_ns"], part["duration_ns"] = table["start"], table["end"] - table["start"]
    if "globalTid" in table:
        part["thread"] = np.where(table["globalTid"] < 0, -1, table["globalTid"] & 0xFFFFFF)
        part["process"] = np.where(table["globalTid"] < 0, -1, table["globalTid"] >> 24)
    if "deviceId" in table:
        part["device"] = table["deviceId"]
        part["context"] = table["contextId"]
        part["stream"] = no_stream(table["streamId"])
        part["process"] = np.where(table["globalPid"] < 0, -1, table["globalPid"] >> 24)
    if "correlationId" in table:
        part["correlation"] = table["correlationId"]
    if "graphNodeId" in table:
        part["graph_node"] = table["graphNodeId"]
    return part | columns


def _look_up_names(ids: np.ndarray, strings: dict[int, str]) -> Any:
    return recode(categorical(ids), lambda i: strings.get(int(i), "unknown"))


def _calls(database: Database, strings: dict[int, str]) -> Part:
    columns = ("start", "end", "globalTid", "correlationId", "nameId")
    t = database.integers(ACTIVITY + "RUNTIME", *columns)
    name = recode(_look_up_names(t["nameId"], strings), lambda n: VERSION_SUFFIX.sub("", n))
    return _part("runtime", name, t)


def _kernels(database: Database, strings: dict[int, str]) -> Part:
    names, sizes = ("demangledName", "shortName"), ("gridX", "gridY", "gridZ")
    block = ("blockX", "blockY", "blockZ")
    needs = ("registersPerThread", "staticSharedMemory", "dynamicSharedMemory")
    t = database.integers(ACTIVITY + "KERNEL", *ON_DEVICE, *names, *sizes, *block, *needs)
    is_listed = np.isin(t["demangledName"], list(strings))
    name = _look_up_names(np.where(is_listed, t["demangledName"], t["shortName"]), strings)
    shared = t["staticSharedMemory"] + t["dynamicSharedMemory"]
    return _part(
        "kernel",
        name,
        t,
        blocks=_product([t[c] for c in sizes]),
        block_threads=_product([t[c] for c in block]),
        registers=t["registersPerThread"],
        shared_bytes=shared,
    )


def _graphs(database: Database, kernels: Part, tally: Tally) -> Part:
    """Return CUDA graphs that were recorded as a whole: each run counts as one kernel."""
    t = database.integers(ACTIVITY + "GRAPH_TRACE", *ON_DEVICE, "graphId")
    whole = ~np.isin(t["correlationId"], kernels["correlation"])
    t = {name: column[whole] for name, column in t.items()}
    tally.add("whole_graphs", np.count_nonzero(whole))
    return _part("kernel", recode(categorical(t["graphId"]), lambda n: f"CUDA graph {n}"), t)


def _product(sizes: list[np.ndarray]) -> np.ndarray:
    product: np.ndarray = np.prod(sizes, axis=0)
    return np.where(np.min(sizes, axis=0) > 0, product, -1)


def _copies(database: Database) -> Part:
    t = database.integers(
        ACTIVITY + "MEMCPY", *ON_DEVICE, "copyKind", "srcKind", "dstKind", "bytes"
    )
    way = (t["copyKind"] & BYTE) << 16 | (t["srcKind"] & BYTE) << 8 | (t["dstKind"] & BYTE)
    return _part("memcpy", recode(categorical(way), _copy_name), t, bytes=_sizes(t["bytes"]))


def _copy_name(way: int) -> str:
    kind, source, target = way >> 16, way >> 8 & BYTE, way & BYTE
    ends = (MEMORY_KINDS.get(source, "Unknown"), MEMORY_KINDS.get(target, "Unknown"))
    return f"Memcpy {COPY_KINDS.get(kind, 'Unknown')} ({ends[0]} -> {ends[1]})"


def _memsets(database: Database) -> Part:
    t = database.integers(ACTIVITY + "MEMSET", *ON_DEVICE, "memKind", "bytes")
    kinds = categorical(t["memKind"])
    name = recode(kinds, lambda k: f"Memset ({MEMORY_KINDS.get(k, 'Unknown')})")
    return _part("memset", name, t, bytes=_sizes(t["bytes"]))


def _sizes(size: np.ndarray) -> np.ndarray:
    return np.where(size < 0, np.nan, size.astype(float))


def _syncs(database: Database, calls: Part) -> Part:
    """Name syncs after the calls that made them: the numbers in ``syncType`` changed over time."""
    t = database.integers(ACTIVITY + "SYNCHRONIZATION", *ON_DEVICE, "eventId")
    call_names = np.asarray(calls["name"], dtype=object)
    call_of = dict(zip(calls["correlation"].tolist(), call_names.tolist(), strict=True))
    streams = no_stream(t["streamId"]).tolist()
    pairs = zip(t["correlationId"].tolist(), streams, strict=True)
    names = [name_sync(call_of.get(c, ""), stream) for c, stream in pairs]
    whole_stream = np.array([n == "Stream Sync" for n in names], dtype=bool)
    wait_stream, wait_event = find_recorded_events(database, t)
    return _part(
        "sync",
        categorical(names),
        t,
        wait_stream=np.where(whole_stream, no_stream(t["streamId"]), wait_stream),
        wait_event=wait_event,
    )


def _ranges(database: Database, strings: dict[int, str], tally: Tally) -> Part:
    t = database.integers("NVTX_EVENTS", "start", "end", "eventType", "textId", "globalTid")
    texts = [said for (said,) in database.rows("NVTX_EVENTS", "text")]
    is_range = np.isin(t["eventType"], RANGE_EVENTS)
    ended = t["end"] >= t["start"]
    tally.add("unfinished_ranges", np.count_nonzero(is_range & ~ended))
    keep = np.flatnonzero(is_range & ended)
    ids = t["textId"].tolist()
    names = [
        strings.get(ids[i], "") if texts[i] is None else cut_name(text(texts[i]))
        for i in keep.tolist()
    ]
    return _part("annotation", categorical(names), {c: v[keep] for c, v in t.items()})


def _overhead(database: Database, strings: dict[int, str]) -> Part:
    t = database.integers("PROFILER_OVERHEAD", "start", "end", "globalTid", "nameId")
    return _part("overhead", _look_up_names(t["nameId"], strings), t)


def _set_ranks(values: dict[str, Any]) -> tuple[int, ...]:
    """Give a rank to each process that put work on a device: ids are its own."""
    process = values.pop("process")
    working = np.unique(process[(values["stream"] >= 0) & (process >= 0)])
    if len(working) < 2:  # noqa: PLR2004
        values["rank"] = np.zeros(len(process), np.int16)
        return (0,)
    at = np.minimum(np.searchsorted(working, process), len(working) - 1)
    values["rank"] = np.where(working[at] == process, at, 0).astype(np.int16)
    return tuple(range(len(working)))
