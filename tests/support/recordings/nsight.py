"""Small SQLite exports of Nsight Systems, written table by table."""

from __future__ import annotations

import sqlite3
from typing import Any

Rows = list[dict[str, Any]]
THREAD, PROCESS = 4242, 17
GLOBAL_TID = PROCESS << 24 | THREAD
GLOBAL_PID = PROCESS << 24


def export(**tables: Rows) -> bytes:
    """Return a database with these tables; a table has the columns its first row has."""
    connection = sqlite3.connect(":memory:")
    for name, rows in tables.items():
        columns = list(dict.fromkeys(column for row in rows for column in row))
        listed = ", ".join(f'"{column}"' for column in columns)
        connection.execute(f'create table "{name}" ({listed})')
        marks = ", ".join("?" for _ in columns)
        values = [[row.get(column) for column in columns] for row in rows]
        connection.executemany(f'insert into "{name}" values ({marks})', values)  # noqa: S608
    connection.commit()
    content = connection.serialize()
    connection.close()
    return content


STRINGS = {
    1: "cudaLaunchKernel_v7000",
    2: "void gemm<float>(float*)",
    3: "gemm",
    4: "cudaMemcpyAsync_v3020",
    5: "cudaStreamSynchronize_v3020",
    6: "cudaStreamWaitEvent_v3020",
    7: "cudaEventSynchronize_v3020",
    8: "cudaDeviceSynchronize_v3020",
    9: "cudaEventQuery_v3020",
    10: "registered range",
}


def strings() -> Rows:
    """Return the table of strings."""
    return [{"id": number, "value": value} for number, value in STRINGS.items()]


def call(
    name: int, start: int, end: int, correlation: int, tid: int = GLOBAL_TID
) -> dict[str, Any]:
    """Return a CUDA API call; times in ns."""
    return {
        "start": start,
        "end": end,
        "globalTid": tid,
        "correlationId": correlation,
        "nameId": name,
    }


def kernel(start: int, end: int, correlation: int, **more: Any) -> dict[str, Any]:
    """Return a kernel on stream 7 of device 0."""
    return {
        "start": start, "end": end, "deviceId": 0, "streamId": 7, "correlationId": correlation,
        "globalPid": GLOBAL_PID, "demangledName": 2, "shortName": 3, "gridX": 4, "gridY": 2,
        "gridZ": 1, "blockX": 128, "blockY": 1, "blockZ": 1, "registersPerThread": 64,
        "staticSharedMemory": 0, "dynamicSharedMemory": 0,
    } | more  # fmt: skip


def copy(start: int, end: int, correlation: int, way: tuple[int, int, int]) -> dict[str, Any]:
    """Return a copy; *way* is (copyKind, srcKind, dstKind)."""
    return {
        "start": start, "end": end, "deviceId": 0, "streamId": 7, "correlationId": correlation,
        "globalPid": GLOBAL_PID, "copyKind": way[0], "srcKind": way[1], "dstKind": way[2],
        "bytes": 4096,
    }  # fmt: skip


def sync(start: int, end: int, correlation: int, stream: int, event: int) -> dict[str, Any]:
    """Return a synchronisation record."""
    return {
        "start": start, "end": end, "deviceId": 0, "streamId": stream, "eventId": event,
        "correlationId": correlation, "globalPid": GLOBAL_PID, "syncType": 3,
    }  # fmt: skip


def named_range(text: str | None, start: int, end: int | None, **more: Any) -> dict[str, Any]:
    """Return an NVTX push/pop range."""
    return {"start": start, "end": end, "eventType": 59, "text": text, "textId": None,
            "globalTid": GLOBAL_TID} | more  # fmt: skip


RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
SYNC = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
CUDA_EVENT = "CUPTI_ACTIVITY_KIND_CUDA_EVENT"
