"""Operator times that outlive a run: a Parquet table in the user's cache folder.

A row is known by device, threads, torch, operator and arguments. Reading needs no torch, and tables
of several machines can be merged into one.
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretrace.tracer.calibration.file import Timing, Where, pack_table, unpack_table
from foretrace.util.atomic_write import write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

KEY = ("device", "threads", "torch", "operator", "arguments")
TIMES = tuple(field.name for field in fields(Timing))


def default_path() -> Path:
    """Return where the table of this user lies."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("foretrace")) / "operators.parquet"


def load(path: Path, where: Where) -> dict[tuple[str, str], Timing]:
    """Return what the table *path* knows of the machine *where*; nothing where there is none.

    Raises
    ------
    RecordError
        The table cannot be read.
    """
    here = (where.device, where.threads, where.torch)
    return {key[3:]: timing for key, timing in _entries(path).items() if key[:3] == here}


def add(path: Path, where: Where, timings: Mapping[tuple[str, str], Timing]) -> None:
    """Put *timings* taken on the machine *where* into the table *path*, made if need be."""
    here = (where.device, where.threads, where.torch)
    new = {(*here, *key): timing for key, timing in timings.items()}
    _write({**_entries(path), **new}, path)


def merge(paths: Iterable[Path], out: Path) -> int:
    """Put all rows of the tables *paths* into *out*, later ones first; return how many."""
    entries: dict[Any, Timing] = {}
    for path in paths:
        entries.update(_entries(path, must_exist=True))
    _write(entries, out)
    return len(entries)


def is_table(path: Path) -> bool:
    """Tell whether *path* is such a table and no calibration of one job."""
    return "device" in unpack_table(path, needed=(), if_there=("device",))[0].column_names


def _entries(path: Path, *, must_exist: bool = False) -> dict[Any, Timing]:
    if not path.exists() and not must_exist:
        return {}
    table, _ = unpack_table(path, needed=(*KEY, *TIMES))
    keys = zip(*(table[name].to_pylist() for name in KEY), strict=True)
    times = zip(*(table[name].to_pylist() for name in TIMES), strict=True)
    return {key: Timing(*values) for key, values in zip(keys, times, strict=True)}


def _write(entries: Mapping[Any, Timing], path: Path) -> None:
    import pyarrow as pa

    columns = {
        **{name: [key[place] for key in entries] for place, name in enumerate(KEY)},
        **{name: [float(getattr(t, name)) for t in entries.values()] for name in TIMES},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, pack_table(pa.table(columns), {}))
