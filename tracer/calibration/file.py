"""Calibration files: operator times of a job in its old and its new forms, as Parquet.

Rows go in and come out as `CalibrationRow`; nothing here needs torch: files merge anywhere.
"""

from __future__ import annotations

import io
import json
import math
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from foretrace.errors import RecordError
from foretrace.util.atomic_write import write_atomically
from foretrace.util.exhaustion import within_means
from foretrace.util.parquet_file import read_parquet_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    import pyarrow as pa

FORMAT = 1
KEY = b"foretrace"
BEFORE, AFTER, SEGMENT = "before", "after", "segment"
REPLACED = ("amp", "batch_size", "channels_last")
"""Changes that put other operators in the place of the job's own."""
REPEATED = "gradient_accumulation"
"""Of it earlier versions timed what is added."""
UPDATED = "fused_optimizer"
CHECKPOINTED = "activation_checkpoint"
HANDED_OVER = "dataloader"
SEGMENTS = (UPDATED, CHECKPOINTED, HANDED_OVER)
"""Changes whose operators stay: whole segments are timed."""
KNOWN = (*REPLACED, *SEGMENTS)
"""Changes that calibration is for."""


@dataclass(frozen=True)
class Timing:
    """Time of one operator, in ns; what could not be found out is NaN.

    ``device_ns`` is the time of its kernels; ``spread`` half the interquartile range as a share.
    """

    ns: float = math.nan
    device_ns: float = math.nan
    spread: float = math.nan

    @property
    def is_known(self) -> bool:
        """Whether there is a time at all."""
        return not math.isnan(self.ns)


@dataclass(frozen=True)
class CalibrationRow:
    """One operator of one list, or one segment; times in ns, NaN where there is none.

    Attributes
    ----------
    change
        Text of the what-if; "" for the job as it is.
    list
        "before", "after" or "segment".
    position
        Order in the list: one step without the optimizer.
    operator, arguments
        What was run: the profiler's name, and canonical JSON.
    phase
        "forward", "backward", or "" for neither.
    of
        Position in "before" of the operator that this one replaces; -1 for a new one.
    ns, device_ns
        Time on the host, and of the kernels.
    spread
        Half the interquartile range of ``ns`` over its median.
    """

    change: str
    list: str
    position: int
    operator: str
    arguments: str
    phase: str
    of: int = -1
    ns: float = math.nan
    device_ns: float = math.nan
    spread: float = math.nan


@dataclass(frozen=True)
class Where:
    """What was measured, and on what: times of different machines or jobs cannot be mixed.

    ``parameter_bytes`` is the size of the parameters by owner, "model" and "optimizer".
    """

    device: str
    threads: int
    torch: str
    job: str
    parameter_bytes: dict[str, int] = field(default_factory=dict)


def write(rows: Sequence[CalibrationRow], where: Where, path: Path) -> None:
    """Write *rows* to *path*, whole or not at all."""
    write_atomically(path, pack(rows, where))


def pack(rows: Sequence[CalibrationRow], where: Where) -> bytes:
    """Return the content of a file of *rows*."""
    import pyarrow as pa

    types = {"int": pa.int32(), "float": pa.float64(), "str": pa.string()}
    columns = {
        f.name: pa.array([getattr(row, f.name) for row in rows], types[str(f.type)])
        for f in fields(CalibrationRow)
    }
    return pack_table(pa.table(columns), asdict(where))


def pack_table(table: pa.Table, described: dict[str, Any]) -> bytes:
    """Return *table* as a Parquet file that says what it is."""
    import pyarrow.parquet as pq

    text = json.dumps({"format": FORMAT, **described})
    buffer = io.BytesIO()
    pq.write_table(table.replace_schema_metadata({KEY: text.encode()}), buffer, compression="zstd")
    return buffer.getvalue()


def unpack_table(
    path: Path, *, needed: Iterable[str], if_there: Sequence[str] = ()
) -> tuple[pa.Table, dict[str, Any]]:
    """Return table and description of the file *path*; the table has the *needed* columns.

    Others are read only where they are among *if_there*.

    Raises
    ------
    RecordError
        The file is none of ours, damaged, or of a later format.
    """
    wanted = list(needed)
    try:
        if path.exists() and not path.is_file():
            raise RecordError(f"{path}: no regular file")
        table, told = read_parquet_file(path, str(path), KEY, [*wanted, *if_there], RecordError)
        with within_means(str(path), RecordError):
            described = json.loads(told or b"{}")
    except OSError as error:
        raise RecordError(f"{path}: cannot be read as a calibration ({error.strerror})") from error
    except ValueError as error:
        raise RecordError(f"{path}: cannot be read as a calibration ({error})") from error
    if not isinstance(described, dict) or described.get("format") != FORMAT:
        raise RecordError(f"{path}: no calibration of format {FORMAT}; calibrate again")
    if missing := [name for name in wanted if name not in table.column_names]:
        raise RecordError(f"{path}: the column {missing[0]!r} is missing; calibrate again")
    return table, described


def read(path: Path) -> tuple[list[CalibrationRow], Where]:
    """Return what `write` wrote; raises as `unpack_table` does."""
    import msgspec  # the machine that records may lack it

    names = [f.name for f in fields(CalibrationRow)]
    table, described = unpack_table(path, needed=names)
    described = {"parameter_bytes": {}, **described}  # files of 0.1 did not say it
    if missing := [f.name for f in fields(Where) if f.name not in described]:
        raise RecordError(f"{path}: does not say its {missing[0]}; calibrate again")
    try:
        where = msgspec.convert(described, Where)
        rows = msgspec.convert(table.select(names).to_pylist(), list[CalibrationRow])
    except msgspec.ValidationError as error:
        raise RecordError(f"{path}: damaged calibration ({error}); calibrate again") from None
    return rows, where


def merge(files: Sequence[Path], out: Path) -> int:
    """Put the changes of *files*, of one job on one machine, into *out*; later files win.

    Returns
    -------
    int
        How many changes *out* has.

    Raises
    ------
    RecordError
        A file cannot be read, or they differ in machine, torch, job or its operators.
    """
    kept, first = read(files[0])
    for path in files[1:]:
        rows, where = read(path)
        if where != first:
            raise RecordError(f"{path} and {files[0]} differ: {_difference(first, where)}")
        kept = combine_rows(kept, rows)
        if not kept:
            raise RecordError(f"{path} and {files[0]} are of jobs with other operators")
    write(kept, first, out)
    return len({row.change for row in kept if row.change})


def combine_rows(
    old: Sequence[CalibrationRow], new: Sequence[CalibrationRow]
) -> list[CalibrationRow]:
    """Return *new* and those changes of *old* that it lacks; nothing where the jobs differ."""
    if _operators(old) and _operators(new) and _operators(old) != _operators(new):
        return []
    given = {(row.change, row.list) for row in new}
    return [*new, *(row for row in old if (row.change, row.list) not in given)]


def _operators(rows: Sequence[CalibrationRow]) -> list[tuple[str, str]]:
    return [(row.operator, row.arguments) for row in rows if row.list == BEFORE]


def _difference(one: Where, other: Where) -> str:
    name = next(f.name for f in fields(Where) if getattr(one, f.name) != getattr(other, f.name))
    return f"{name} {getattr(one, name)!r}, {name} {getattr(other, name)!r}"
