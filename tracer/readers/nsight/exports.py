"""Other forms of a report of Nsight Systems: the report itself, and its export to Parquet.

In: a file or folder. Out: the SQLite export that `read_nsight` reads, as bytes.
"""

from __future__ import annotations

import re
import shutil
import sqlite3
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq

from foretrace.errors import TraceError
from foretrace.tracer.child_process import ending_with_this
from foretrace.tracer.readers.nsight.database import ACTIVITY
from foretrace.util.limits import ROWS, UNPACKED

REPORT = re.compile(r"\.(nsys-rep|qdrep)$", re.IGNORECASE)
TABLE = re.compile(
    rf"^({ACTIVITY}\w+|StringIds|NVTX_EVENTS|PROFILER_OVERHEAD|TARGET_INFO_\w+|META_DATA_\w+"
    r"|ANALYSIS_FILE)$"
)
LONGEST_EXPORT_S = 1_800
HINT = "nsys export --type sqlite"


def export_report(path: Path) -> bytes:
    """Return the SQLite export of a report, made by the ``nsys`` that is installed here.

    Raises
    ------
    TraceError
        There is none, or it does not export the report.
    """
    nsys = shutil.which("nsys")
    if nsys is None:
        raise TraceError(
            f"{path.name}: a report of Nsight Systems, which only nsys reads, and it is not "
            f"installed here; run '{HINT} {path.name}' where it is, and give the .sqlite"
        )
    with TemporaryDirectory() as folder:
        out = Path(folder) / "export.sqlite"
        asked = [nsys, "export", "--type", "sqlite", "--force-overwrite", "true", "--output"]
        try:
            done = subprocess.run(  # noqa: S603 -- the user's own nsys, without a shell
                ending_with_this(*asked, str(out), str(path.resolve())),
                capture_output=True, check=False, timeout=LONGEST_EXPORT_S, text=True,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise TraceError(f"{path.name}: nsys does not export it ({error})") from error
        if done.returncode or not out.is_file():
            last = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["it says nothing"]
            raise TraceError(f"{path.name}: nsys does not export it ({last[0][:200]})")
        most = UNPACKED.allowed(path.stat().st_size)
        if out.stat().st_size > most:
            raise TraceError(UNPACKED.refusal(path.name, most, out.stat().st_size))
        return out.read_bytes()


def is_parquet_export(folder: Path) -> bool:
    """Tell whether *folder* is what ``nsys export --type parquetdir`` makes."""
    return any(TABLE.match(file.stem) for file in folder.glob("*.parquet"))


def read_parquet_export(folder: Path) -> bytes:
    """Return the tables of a Parquet export as one SQLite file.

    Raises
    ------
    TraceError
        A table is damaged, or has more rows than a file of its size has.
    """
    connection = sqlite3.connect(":memory:")
    try:
        for file in sorted(folder.glob("*.parquet")):
            if TABLE.match(file.stem) and file.is_file():
                _copy_table(connection, file)
        connection.commit()
        return connection.serialize()
    except (pa.ArrowException, OSError, sqlite3.Error) as error:
        raise TraceError(f"{folder.name}: damaged Parquet export ({error})") from error
    finally:
        connection.close()


def _copy_table(connection: sqlite3.Connection, path: Path) -> None:
    with pq.ParquetFile(path) as file:
        ROWS.check(file.metadata.num_rows, path.name, TraceError, on_disk=path.stat().st_size)
        names = [name for name in file.schema_arrow.names if '"' not in name]
        columns = ", ".join(f'"{name}"' for name in names)
        connection.execute(f'create table "{path.stem}" ({columns})')
        insert = f'insert into "{path.stem}" values ({", ".join("?" * len(names))})'  # noqa: S608
        for batch in file.iter_batches(columns=names):
            rows = zip(*(column.to_pylist() for column in batch.columns), strict=True)
            connection.executemany(insert, rows)
