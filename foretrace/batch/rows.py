"""Results of a batch on disk: one Parquet file per item as it finishes, and one table at the end.

Every file is written whole or not at all, so that a batch may be killed at any time.
"""

from __future__ import annotations

import io
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from foretrace.errors import TraceError
from foretrace.util.atomic_write import write_atomically
from foretrace.util.parquet_file import read_parquet_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

ITEMS = "items"
"""Folder, inside that of the results, with a file per item."""
TABLE = "results.parquet"
KEY = b"foretrace batch"
LATER = ("doubts", "evidence")
"""Columns that tables of earlier versions lack."""
DAMAGED = "cannot be read as results of a batch"
MOST_NS = 1e16
Text = Annotated[str, msgspec.Meta(max_length=1 << 16)]
Time = Annotated[float, msgspec.Meta(gt=0, le=MOST_NS)]


class StoredDoubt(msgspec.Struct, forbid_unknown_fields=True):
    """A `Doubt`, as JSON has it."""

    code: Text
    text: Text
    place: Text = ""


class StoredRow(msgspec.Struct):
    """What the columns of a `Row` may hold in a file that anybody may have written."""

    key: Text
    version: Text
    recording: Text
    model: Text
    scenario: Text
    transforms: Text
    is_final: bool
    hardware: Literal["gpu", "cpu"] | None = None
    before_ns: Time | None = None
    replayed_ns: Time | None = None
    predicted_ns: Time | None = None
    low_ns: Annotated[float, msgspec.Meta(ge=0, le=MOST_NS)] | None = None
    high_ns: Time | None = None
    samples: Annotated[float, msgspec.Meta(gt=0, le=1e9)] | None = None
    status: Literal["validated", "tested elsewhere", "unvalidated"] | None = None
    after_ns: Time | None = None
    paper_ns: Time | None = None
    noise: Annotated[float, msgspec.Meta(ge=0, le=1e3)] | None = None
    doubts: Text | None = None
    evidence: Text | None = None
    error: Text | None = None


@dataclass(frozen=True)
class Row:
    """One item of a batch: a recording, what is changed, and what came out. Times in ns, of a step.

    ``before_ns`` was measured, ``replayed_ns`` is its replay without any change. ``low_ns`` and
    ``high_ns`` bound the prediction, ``samples`` is how many times as many samples a step has
    afterwards. ``after_ns`` was measured, too, and ``paper_ns`` is the prediction by the Daydream
    paper's constants; ``noise`` is the share by which repeats of the measurement drift. ``doubts``
    is JSON: a list of what may be wrong in this very prediction, as ``--json`` has it;
    ``evidence`` names the measured pairs behind it, a line for each what-if. ``None`` is unknown.
    ``error`` says why there is no prediction; unless it ``is_final``, the next run
    tries again.
    """

    key: str
    version: str
    recording: str
    model: str
    scenario: str
    transforms: str
    hardware: str | None = None
    before_ns: float | None = None
    replayed_ns: float | None = None
    predicted_ns: float | None = None
    low_ns: float | None = None
    high_ns: float | None = None
    samples: float | None = None
    status: str | None = None
    after_ns: float | None = None
    paper_ns: float | None = None
    noise: float | None = None
    doubts: str | None = None
    evidence: str | None = None
    error: str | None = None
    is_final: bool = True

    def without(self, error: str) -> Row:
        """Return the row with *error* in place of all that was found."""
        asked = (self.key, self.version, self.recording, self.model, self.scenario, self.transforms)
        return Row(*asked, error=error, is_final=False)


def read_stored(out: Path, keys: Sequence[str]) -> dict[str, Row]:
    """Return the rows of *keys* that an earlier run left in *out* and that need no other try."""
    rows = {}
    for key in keys:
        path = item_path(out, key)
        if not path.is_file():
            continue
        try:
            row = read_rows(path)[0]
        except (TraceError, IndexError):
            continue  # damaged by others: predicted anew
        if row.is_final and row.key == key:
            rows[key] = row
    return rows


def store(out: Path, row: Row) -> None:
    """Write *row* into its own file.

    Raises
    ------
    OSError
        The disk is full, or the folder cannot be written to.
    """
    write_rows(item_path(out, row.key), [row])


def item_path(out: Path, key: str) -> Path:
    """Return where the row of *key* lies."""
    return out / ITEMS / f"{key}.parquet"


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """Write *rows* as one Parquet file, whole or not at all.

    Raises
    ------
    OSError
        The disk is full, or the folder is missing or cannot be written to.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    content = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([asdict(row) for row in rows], _schema()), content)
    write_atomically(path, content.getvalue())


def read_rows(path: str | Path) -> list[Row]:
    """Read the table of a batch, by the name of its file or of its folder.

    Raises
    ------
    TraceError
        There is no such file, or it is no table of a batch.
    """
    path = Path(path)
    path = path / TABLE if path.is_dir() else path
    if path.exists() and not path.is_file():
        raise TraceError(f"{path}: no regular file")
    declared = _schema().names
    try:
        table, told = read_parquet_file(path, str(path), KEY, declared, TraceError, damaged=DAMAGED)
    except FileNotFoundError:
        raise TraceError(f"{path}: there is no such file; foretrace batch writes it") from None
    except OSError as error:
        raise TraceError(f"{path}: {DAMAGED} ({error.strerror})") from error
    if told is None:
        raise TraceError(f"{path}: no results of foretrace batch")
    lacks = [n for n in declared if n not in table.column_names and n not in LATER]
    if lacks:
        raise TraceError(f"{path}: {DAMAGED} (there is no column {lacks[0]!r})")
    return [_row(values, f"{path}: row {at}") for at, values in enumerate(table.to_pylist())]


def _row(values: dict[str, object], where: str) -> Row:
    """Return a row whose times are times; one without an error has what a prediction has."""
    try:
        stored = msgspec.convert(values, StoredRow)
        if stored.doubts is not None:
            msgspec.json.decode(stored.doubts, type=list[StoredDoubt])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise TraceError(f"{where} is impossible: {error}") from None
    interval = (stored.low_ns, stored.predicted_ns, stored.high_ns)
    if stored.error is None:
        if None in (*interval, stored.before_ns, stored.replayed_ns, stored.samples):
            raise TraceError(f"{where} is impossible: it has no prediction and no error")
        if not interval[0] <= interval[2]:  # type: ignore[operator]  # neither is None
            raise TraceError(f"{where} is impossible: its interval ends before it begins")
    return Row(**msgspec.structs.asdict(stored))


def _schema() -> pa.Schema:
    import pyarrow as pa

    kinds = {"str": pa.string(), "float": pa.float64(), "bool": pa.bool_()}
    declared = [(f.name, kinds[str(f.type).removesuffix(" | None")]) for f in fields(Row)]
    return pa.schema(declared, {KEY: b"1"})
