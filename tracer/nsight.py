"""Read SQLite exports of Nsight Systems (schemas 3.7 to 3.16); every table is optional."""

from __future__ import annotations

import sqlite3
from typing import Any

import numpy as np
import pandas as pd

from foretrace.errors import TraceError
from foretrace.tracer import checks
from foretrace.tracer.columns import event_frame, from_codes, no_stream
from foretrace.tracer.oddities import Tally
from foretrace.tracer.trace import EVENT_KINDS, Device, Trace, TraceMeta

THREAD_MASK = 0xFFFFFF
COPY_KINDS = {1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA",
              8: "DtoD", 9: "HtoH", 10: "PtoP", 11: "HtoD", 12: "DtoH", 13: "DtoD"}  # fmt: skip
MEMORY_KINDS = {0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array", 4: "Managed",
                5: "Device", 6: "Managed", 7: "Unknown"}  # fmt: skip
PREFIX = "CUPTI_ACTIVITY_KIND_"
RANGE_TYPES = (59, 60)  # NvtxPushPopRange, NvtxStartEndRange


def read_nsight(raw: bytes, source: str) -> Trace:
    """Turn the bytes of an SQLite export into a trace.

    Raises
    ------
    TraceError
        If it is damaged or no export of Nsight Systems.
    """
    tally = Tally()
    connection = sqlite3.connect(":memory:")
    try:
        connection.deserialize(raw)
        return _read(connection, source, tally)
    except sqlite3.DatabaseError as error:
        raise TraceError(f"{source}: damaged SQLite file ({error}); export it again") from error
    finally:
        connection.close()


def _read(connection: sqlite3.Connection, source: str, tally: Tally) -> Trace:
    database = _Database(connection)
    if not any(t.startswith(PREFIX) or t == "NVTX_EVENTS" for t in database.tables):
        raise TraceError(f"{source}: an SQLite file, but no export of Nsight Systems")
    strings = dict(database.rows("StringIds", "id", "value"))
    parts = [
        part
        for part in (
            _calls(database, strings),
            _kernels(database, strings),
            _copies(database),
            _memsets(database),
            _ranges(database, strings, tally),
        )
        if len(part)
    ]
    syncs = _syncs(database, parts[0] if parts else pd.DataFrame())
    parts += [syncs] if len(syncs) else []
    if not parts:
        raise TraceError(f"{source}: the export holds no CUDA calls, kernels or NVTX ranges")
    frame = pd.concat(parts, ignore_index=True)
    first = int(frame["start_ns"].min())
    frame["start_ns"] -= first
    frame = event_frame(_encode(frame), len(frame))
    frame = checks.clean(frame, tally)
    frame, moved = checks.to_origin(frame)
    meta = TraceMeta(
        format="nsight",
        source=source,
        devices=_devices(database),
        command=_command(database),
        warnings=tally.counts(),
        extra={"origin_ns": first + moved},
    )
    return Trace(frame, meta)


class _Database:
    """Tables and columns that may or may not be there."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        names = connection.execute("select name from sqlite_master where type = 'table'")
        self.tables = {name for (name,) in names}

    def columns(self, table: str) -> set[str]:
        return {row[1] for row in self._connection.execute(f'pragma table_info("{table}")')}

    def rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        """Return rows; a column that the table lacks is None, a lacking table has no rows."""
        if table not in self.tables:
            return []
        there = self.columns(table)
        wanted = ", ".join(f'"{c}"' if c in there else "null" for c in columns)
        return self._connection.execute(f'select {wanted} from "{table}"').fetchall()  # noqa: S608

    def frame(self, table: str, *columns: str) -> pd.DataFrame:
        rows = self.rows(table, *columns)
        data = list(zip(*rows, strict=True)) if rows else [()] * len(columns)
        return pd.DataFrame(
            {c: np.array(v, dtype=object) for c, v in zip(columns, data, strict=True)}
        )


def _integer(values: pd.Series) -> np.ndarray:
    return np.array([-1 if v is None else v for v in values], dtype=np.int64)


def _times(table: pd.DataFrame) -> dict[str, np.ndarray]:
    start = _integer(table["start"])
    return {"start_ns": start, "duration_ns": _integer(table["end"]) - start}


def _calls(database: _Database, strings: dict[int, str]) -> pd.DataFrame:
    t = database.frame(PREFIX + "RUNTIME", "start", "end", "globalTid", "correlationId", "nameId")
    names = {i: s.rsplit("_v", 1)[0] if s.rsplit("_v", 1)[-1].isdigit() else s
             for i, s in strings.items()}  # fmt: skip
    return pd.DataFrame(
        _times(t)
        | {
            "kind": "runtime",
            "name": np.array([names.get(i, "unknown") for i in t["nameId"]], dtype=object),
            "thread": _integer(t["globalTid"]) & THREAD_MASK,
            "correlation": _integer(t["correlationId"]),
        }
    )


def _on_device(t: pd.DataFrame) -> dict[str, Any]:
    return _times(t) | {
        "device": _integer(t["deviceId"]),
        "stream": no_stream(_integer(t["streamId"])),
        "correlation": _integer(t["correlationId"]),
        "graph_node": _integer(t["graphNodeId"]),
    }


DEVICE_COLUMNS = ("start", "end", "deviceId", "streamId", "correlationId", "graphNodeId")


def _kernels(database: _Database, strings: dict[int, str]) -> pd.DataFrame:
    sizes = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")
    t = database.frame(PREFIX + "KERNEL", *DEVICE_COLUMNS, "demangledName", "shortName", *sizes)
    names = [
        strings.get(d) or strings.get(s) or "unknown"
        for d, s in zip(t["demangledName"], t["shortName"], strict=True)
    ]
    grid = np.prod([_integer(t[c]) for c in sizes[:3]], axis=0)
    block = np.prod([_integer(t[c]) for c in sizes[3:]], axis=0)
    return pd.DataFrame(
        _on_device(t)
        | {"kind": "kernel", "name": np.array(names, dtype=object), "blocks": grid, "block_threads": block}
    )


def _copies(database: _Database) -> pd.DataFrame:
    t = database.frame(PREFIX + "MEMCPY", *DEVICE_COLUMNS, "copyKind", "srcKind", "dstKind", "bytes")
    names = [
        f"Memcpy {COPY_KINDS.get(k, 'Unknown')} "
        f"({MEMORY_KINDS.get(s, 'Unknown')} -> {MEMORY_KINDS.get(d, 'Unknown')})"
        for k, s, d in zip(t["copyKind"], t["srcKind"], t["dstKind"], strict=True)
    ]
    return pd.DataFrame(
        _on_device(t)
        | {"kind": "memcpy", "name": np.array(names, dtype=object), "bytes": t["bytes"].astype(float)}
    )


def _memsets(database: _Database) -> pd.DataFrame:
    t = database.frame(PREFIX + "MEMSET", *DEVICE_COLUMNS, "memKind", "bytes")
    names = [f"Memset ({MEMORY_KINDS.get(k, 'Unknown')})" for k in t["memKind"]]
    return pd.DataFrame(
        _on_device(t)
        | {"kind": "memset", "name": np.array(names, dtype=object), "bytes": t["bytes"].astype(float)}
    )


def _syncs(database: _Database, calls: pd.DataFrame) -> pd.DataFrame:
    """Name syncs after the call that made them: the numbering of ``syncType`` changed over time."""
    t = database.frame(
        PREFIX + "SYNCHRONIZATION", "start", "end", "deviceId", "streamId", "correlationId", "eventId"
    )
    call_of = {}
    if len(calls) and "kind" in calls:
        runtime = calls[calls["kind"] == "runtime"]
        call_of = dict(zip(runtime["correlation"], runtime["name"], strict=True))
    stream = no_stream(_integer(t["streamId"]))
    names = [_sync_name(call_of.get(c, ""), s) for c, s in zip(t["correlationId"], stream, strict=True)]
    waits = np.where(np.array(names, dtype=object) == "Stream Sync", stream, -1)
    return pd.DataFrame(
        _times(t)
        | {
            "kind": "sync",
            "name": np.array(names, dtype=object),
            "device": _integer(t["deviceId"]),
            "stream": stream,
            "correlation": _integer(t["correlationId"]),
            "wait_stream": waits.astype(np.int64),
        }
    )


def _sync_name(call: str, stream: int) -> str:
    if "StreamWaitEvent" in call:
        return "Stream Wait Event"
    if "EventSynchronize" in call:
        return "Event Sync"
    if "EventQuery" in call:
        return "Event Query"
    return "Context Sync" if stream < 0 else "Stream Sync"


def _ranges(database: _Database, strings: dict[int, str], tally: Tally) -> pd.DataFrame:
    t = database.frame("NVTX_EVENTS", "start", "end", "eventType", "text", "textId", "globalTid")
    t = t[t["eventType"].isin(RANGE_TYPES)].reset_index(drop=True)
    open_ended = t["end"].isna().to_numpy()
    tally.add("unfinished_ranges", int(open_ended.sum()))
    t = t[~open_ended].reset_index(drop=True)
    names = [x if x is not None else strings.get(i, "") for x, i in zip(t["text"], t["textId"], strict=True)]
    return pd.DataFrame(
        _times(t)
        | {
            "kind": "annotation",
            "name": np.array(names, dtype=object),
            "thread": _integer(t["globalTid"]) & THREAD_MASK,
        }
    )


def _encode(frame: pd.DataFrame) -> dict[str, Any]:
    values: dict[str, Any] = {"rank": np.zeros(len(frame), np.int16)}
    for column in frame:
        if column == "kind":
            index = {k: i for i, k in enumerate(EVENT_KINDS)}
            values["kind"] = from_codes(frame["kind"].map(index).to_numpy(np.int8), EVENT_KINDS)
        elif column == "name":
            codes, names = pd.factorize(frame["name"].to_numpy(object))
            values["name"] = from_codes(codes, list(names))
        elif column == "bytes":
            values["bytes"] = frame["bytes"].to_numpy(float)
        else:
            values[str(column)] = frame[column].fillna(-1).to_numpy(np.int64)
    return values


def _devices(database: _Database) -> tuple[Device, ...]:
    rows = database.rows("TARGET_INFO_GPU", "id", "name", "smCount", "totalMemory", "maxWarpsPerSm", "threadsPerWarp")
    return tuple(
        Device(i, name or "", sms, memory, warps * width if warps and width else None)
        for i, name, sms, memory, warps, width in rows
    )


def _command(database: _Database) -> str | None:
    found = dict(database.rows("META_DATA_CAPTURE", "name", "value"))
    words = [found.get("PROCESS_0:COMMAND")]
    while argument := found.get(f"PROCESS_0:ARGUMENT_{len(words) - 1}"):
        words.append(argument)
    return " ".join(words) if words[0] else None
