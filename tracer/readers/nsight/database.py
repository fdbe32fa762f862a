"""An SQLite export of Nsight Systems: tables and columns that may or may not be there."""

from __future__ import annotations

import re
import sqlite3
from typing import TYPE_CHECKING, Any

import numpy as np

from foretrace.errors import TraceError
from foretrace.tracer.readers.columns import LATEST_NS, cut_name
from foretrace.tracer.readers.occupancy import Limits
from foretrace.tracer.trace import Device
from foretrace.util.limits import ROWS

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_INTEGER = 2**63 - 1
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


MOST_BYTES_PER_ROW = 1 << 22
"""The longest row or text of an export: a command line, or the report of a tool."""
STEPS, MOST_STEPS_PER_BYTE, LEAST_STEPS = 100_000, 200, 200_000_000
"""How often it is asked, while a query runs, whether it takes too long, and how long that is: an
export of 1 MiB is read in a tenth of these steps."""


class Database:
    """Tables and columns that may or may not be there, read within bounds.

    A file may define columns that compute something, and tables that are programs: neither runs
    without end, and functions that a schema must not call are not called.
    """

    def __init__(self, connection: sqlite3.Connection, source: str = "", on_disk: int = 0) -> None:
        self._connection = connection
        self._source, self._on_disk = source, on_disk
        self._steps_left = max(LEAST_STEPS, MOST_STEPS_PER_BYTE * on_disk)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_BYTES_PER_ROW)
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        connection.set_progress_handler(self._takes_too_long, STEPS)
        connection.execute("pragma trusted_schema = off")
        names = connection.execute(
            "select name from sqlite_master where type = 'table' and sql not like 'create virtual%'"
        )
        self.tables = {name for (name,) in names if isinstance(name, str)}

    def _takes_too_long(self) -> bool:
        self._steps_left -= STEPS
        return self._steps_left < 0

    def rows(self, table: str, *columns: str, otherwise: str = "null") -> list[tuple[Any, ...]]:
        """Return all rows; a column that is not there is *otherwise*, and so is a null.

        Raises
        ------
        TraceError
            There are more than a file of this size has.
        """
        if table not in self.tables:
            return []
        described = self._connection.execute(f'pragma table_info("{table}")')
        there = {row[1] for row in described}
        wanted = (f'ifnull("{c}", {otherwise})' if c in there else otherwise for c in columns)
        query = f'select {", ".join(wanted)} from "{table}"'  # noqa: S608  # our own names
        most = ROWS.allowed(self._on_disk)
        rows = self._connection.execute(query).fetchmany(most + 1)
        if len(rows) > most:
            raise TraceError(ROWS.refusal(f"{self._source}: table {table}", most))
        return rows

    def integers(self, table: str, *columns: str) -> dict[str, np.ndarray]:
        """Return int64 columns; −1 where a value or the column is not there.

        Raises
        ------
        sqlite3.DatabaseError
            A value is no whole number.
        """
        rows = self.rows(table, *columns, otherwise="-1")
        try:
            array = np.array(rows)
            if len(rows) and array.dtype.kind not in "iu":  # a float may be none
                array = np.array([[whole(value) for value in row] for row in rows], np.int64)
            array = array.astype(np.int64).reshape(len(rows), len(columns))
        except (TypeError, ValueError, OverflowError) as error:
            raise sqlite3.DatabaseError(f"table {table} holds text where numbers belong") from error
        return {name: array[:, place] for place, name in enumerate(columns)}


def whole(value: Any) -> int:
    """Return a whole number that a column may also hold as a float or as text.

    Raises
    ------
    ValueError
        It is none, or has more than 64 bits.
    """
    number = float(value) if isinstance(value, str | float) else value
    if not isinstance(number, int | float) or not abs(number) <= MOST_INTEGER:
        raise ValueError
    return int(number)


def text(value: Any) -> str:
    """Return a text that a column may also hold as bytes or a number; "" of nothing.

    >>> text("relu"), text(b"relu"), text(None), text(3)
    ('relu', 'relu', '', '3')
    """
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return "" if value is None else str(value)


def _size(value: Any) -> int | None:
    """Return a number above 0, or ``None`` where a column holds something else."""
    return value if type(value) is int and value > 0 else None


def number_devices(database: Database, used: Iterable[int]) -> dict[int, int]:
    """Return the index under which work names each accelerator, by its id among all GPUs.

    The export also lists GPUs that run no CUDA, of a display or in software. Where work names an
    index that is none of the others' ids, it counts the accelerators alone.
    """
    listed = database.rows("TARGET_INFO_GPU", "id", "name")
    rows = [(number, cut_name(text(name))) for number, name in listed if _is_index(number)]
    ours = [number for number, name in rows if NVIDIA.search(name)]
    ours = ours or [number for number, name in rows if not NO_CUDA.search(name)]
    if len(ours) == len(rows) or set(used) <= set(ours):
        return {number: number for number in ours}
    return {number: index for index, number in enumerate(sorted(ours))}


def _is_index(number: Any) -> bool:
    return type(number) is int and 0 <= number <= np.iinfo(np.int16).max


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
            cut_name(text(name)),
            _size(processors),
            _size(memory),
            warps * width if _size(warps) and _size(width) else None,
        )
        for number, name, processors, memory, warps, width in rows
        if number in index
    )


def command(database: Database) -> str | None:
    """Return the command line that was recorded, if the export has it."""
    metadata = {text(n): text(v) for n, v in database.rows("META_DATA_CAPTURE", "name", "value")}
    words = [metadata.get("PROCESS_0:COMMAND")]
    while argument := metadata.get(f"PROCESS_0:ARGUMENT_{len(words) - 1}"):
        words.append(argument)
    return " ".join(str(word) for word in words) if words[0] else None


def session_start(database: Database) -> int:
    """Return when the recording began, in ns since 1970; 0 if the export does not say."""
    rows = database.rows("TARGET_INFO_SESSION_START_TIME", "utcEpochNs")
    start = rows[0][0] if rows else 0
    return start if type(start) is int and 0 <= start <= LATEST_NS else 0
