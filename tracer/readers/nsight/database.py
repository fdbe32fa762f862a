"""An SQLite export of Nsight Systems: tables and columns that may or may not be there."""

from __future__ import annotations

import re
import sqlite3
from typing import TYPE_CHECKING, Any

import numpy as np

from foretrace.tracer.readers.occupancy import Limits
from foretrace.tracer.trace import Device

if TYPE_CHECKING:
    from collections.abc import Iterable

ACTIVITY = "CUPTI_ACTIVITY_KIND_"
NVIDIA = re.compile(
    r"nvidia|geforce|tesla|quadro|\b(rtx|gtx|titan|jetson|orin|xavier|thor)\b|^g?[abhlptv]\d{1,4}\b",
    re.IGNORECASE,
)
NO_CUDA = re.compile(
    r"intel|\bamd\b|radeon|microsoft|llvmpipe|swiftshader|software|render|vmware|parallels|apple"
    r"|matrox|aspeed|virtio|mali|adreno",
    re.IGNORECASE,
)
"""Makers of GPUs that run no CUDA, and renderers in software."""


class Database:
    """Tables and columns that may or may not be there."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        names = connection.execute("select name from sqlite_master where type = 'table'")
        self.tables = {name for (name,) in names}

    def rows(self, table: str, *columns: str, otherwise: str = "null") -> list[tuple[Any, ...]]:
        """Return all rows; a column that is not there is *otherwise*, and so is a null."""
        if table not in self.tables:
            return []
        described = self._connection.execute(f'pragma table_info("{table}")')
        there = {row[1] for row in described}
        wanted = (f'ifnull("{c}", {otherwise})' if c in there else otherwise for c in columns)
        query = f'select {", ".join(wanted)} from "{table}"'  # noqa: S608  # our own names
        return self._connection.execute(query).fetchall()

    def integers(self, table: str, *columns: str) -> dict[str, np.ndarray]:
        """Return int64 columns; −1 where a value or the column is not there."""
        rows = self.rows(table, *columns, otherwise="-1")
        try:
            array = np.array(rows, dtype=np.int64).reshape(len(rows), len(columns))
        except (TypeError, ValueError, OverflowError) as error:
            raise sqlite3.DatabaseError(f"table {table} holds text where numbers belong") from error
        return {name: array[:, place] for place, name in enumerate(columns)}


def number_devices(database: Database, used: Iterable[int]) -> dict[int, int]:
    """Return the index under which work names each accelerator, by its id among all GPUs.

    The export also lists GPUs that run no CUDA, of a display or in software. Where work names an
    index that is none of the others' ids, it counts the accelerators alone.
    """
    rows = database.rows("TARGET_INFO_GPU", "id", "name")
    ours = [number for number, name in rows if NVIDIA.search(str(name or ""))]
    ours = ours or [number for number, name in rows if not NO_CUDA.search(str(name or ""))]
    if len(ours) == len(rows) or set(used) <= set(ours):
        return {number: number for number in ours}
    return {number: index for index, number in enumerate(sorted(ours))}


def limits(database: Database, index: dict[int, int]) -> dict[int, Limits]:
    """Return what a multiprocessor of each device offers, by the *index* of its id."""
    t = database.integers(
        "TARGET_INFO_GPU", "id", "maxWarpsPerSm", "maxRegistersPerSm", "maxShmemPerSm",
        "computeMajor", "computeMinor",
    )  # fmt: skip
    rows = zip(*(column.tolist() for column in t.values()), strict=True)
    return {
        index[number]: Limits(warps, registers, shared, (major, minor))
        for number, warps, registers, shared, major, minor in rows
        if number in index
    }


def devices(database: Database, index: dict[int, int]) -> tuple[Device, ...]:
    """Return the accelerators of the machine, by the *index* of their ids."""
    rows = database.rows(
        "TARGET_INFO_GPU", "id", "name", "smCount", "totalMemory", "maxWarpsPerSm", "threadsPerWarp"
    )
    return tuple(
        Device(
            index[number],
            name or "",
            processors,
            memory,
            warps * width if warps and width else None,
        )
        for number, name, processors, memory, warps, width in rows
        if number in index
    )


def command(database: Database) -> str | None:
    """Return the command line that was recorded, if the export has it."""
    metadata = dict(database.rows("META_DATA_CAPTURE", "name", "value"))
    words = [metadata.get("PROCESS_0:COMMAND")]
    while argument := metadata.get(f"PROCESS_0:ARGUMENT_{len(words) - 1}"):
        words.append(argument)
    return " ".join(str(word) for word in words) if words[0] else None


def session_start(database: Database) -> int:
    """Return when the recording began, in ns since 1970; 0 if the export does not say."""
    rows = database.rows("TARGET_INFO_SESSION_START_TIME", "utcEpochNs")
    return rows[0][0] or 0 if rows else 0
