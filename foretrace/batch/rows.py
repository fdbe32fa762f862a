"""Results of a batch on disk: one Parquet file per item as it finishes, and one table at the end.

Every file is written whole or not at all, so that a batch may be killed at any time.
"""

from __future__ import annotations

import io
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from foretrace.errors import TraceError
from foretrace.util.atomic_write import write_atomically

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

ITEMS = "items"
"""Folder, inside that of the results, with a file per item."""
TABLE = "results.parquet"
KEY = b"foretrace batch"
LATER = ("doubts",)
"""Columns that tables of earlier versions lack."""


@dataclass(frozen=True)
class Row:
    """One item of a batch: a recording, what is changed, and what came out. Times in ns, of a step.

    ``before_ns`` was measured, ``replayed_ns`` is its replay without any change. ``low_ns`` and
    ``high_ns`` bound the prediction, ``samples`` is how many times as many samples a step has
    afterwards. ``after_ns`` was measured, too, and ``paper_ns`` is the prediction by the Daydream
    paper's constants; ``noise`` is the share by which repeats of the measurement drift. ``doubts``
    is JSON: a list of what may be wrong in this very prediction, as ``--json`` has it. ``None``
    is unknown. ``error`` says why there is no prediction; unless it ``is_final``, the next run
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
        if row.is_final:
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
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = Path(path)
    path = path / TABLE if path.is_dir() else path
    try:
        table = pq.read_table(path)
        names = [n for n in _schema().names if n in table.schema.names or n not in LATER]
        columns = table.select(names) if KEY in (table.schema.metadata or {}) else None
    except FileNotFoundError:
        raise TraceError(f"{path}: there is no such file; foretrace batch writes it") from None
    except (OSError, pa.ArrowException, KeyError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise TraceError(f"{path}: cannot be read as results of a batch ({reason})") from error
    if columns is None:
        raise TraceError(f"{path}: no results of foretrace batch")
    return [Row(**row) for row in columns.to_pylist()]


def _schema() -> pa.Schema:
    import pyarrow as pa

    kinds = {"str": pa.string(), "float": pa.float64(), "bool": pa.bool_()}
    declared = [(f.name, kinds[str(f.type).removesuffix(" | None")]) for f in fields(Row)]
    return pa.schema(declared, {KEY: b"1"})
