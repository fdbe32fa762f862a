"""An SQLite export of Nsight Systems: tables and columns that may or may not be there."""

from __future__ import annotations

import sqlite3
from typing import Any

import numpy as np

from foretrace.tracer.readers.occupancy import Limits
from foretrace.tracer.trace import Device


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


def limits(database: Database) -> dict[int, Limits]:
    """Return what a multiprocessor of each device offers."""
    t = database.integers(
        "TARGET_INFO_GPU", "id", "maxWarpsPerSm", "maxRegistersPerSm", "maxShmemPerSm",
        "computeMajor", "computeMinor",
    )  # fmt: skip
    rows = zip(*(column.tolist() for column in t.values()), strict=True)
    return {
        index: Limits(warps, registers, shared, (major, minor))
        for index, warps, registers, shared, major, minor in rows
    }


def devices(database: Database) -> tuple[Device, ...]:
    """Return the accelerators of the machine."""
    rows = database.rows(
        "TARGET_INFO_GPU", "id", "name", "smCount", "totalMemory", "maxWarpsPerSm", "threadsPerWarp"
    )
    return tuple(
        Device(index, name or "", processors, memory, warps * width if warps and width else None)
        for index, name, processors, memory, warps, width in rows
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
