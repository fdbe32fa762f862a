"""Times of steps, whatever wrote them down: a table, an array, or what a training printed.

In: a file. Out: seconds per step of each sample, and how many steps a sample is the mean of.
"""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from foretrace.errors import RefusedError
from foretrace.replay.job_log import read_log

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    import numpy.typing as npt

NUMPY = b"\x93NUMPY"
UNITS = {"_ms": 1e-3, "_us": 1e-6, "_ns": 1e-9}
NAMES = ("seconds", "s", "step_time", "iter_time", "iteration_time", "time_per_step", "duration")
"""Columns that hold times of steps, where a table has several; a unit may follow: step_time_ms."""


@dataclass(frozen=True)
class Samples:
    """Seconds per step of each sample, in order; a sample is the mean of ``stride`` steps.

    ``source`` says in words where they come from, ``notes`` what was left out.
    """

    seconds: npt.NDArray[np.float64]
    stride: int = 1
    source: str = "samples"
    notes: tuple[str, ...] = ()


def read_samples(path: Path, column: str | None = None) -> Samples:
    """Read the times of steps at *path*: a table, an array of NumPy, JSON, or a training log.

    Parameters
    ----------
    path
        Times are seconds, unless the name of their column ends in ``_ms``, ``_us`` or ``_ns``.
        JSON is a list of objects, or an object with such a list as its ``log_history``.
    column
        The column or key that holds the times; needed where several might.

    Raises
    ------
    RefusedError
        Nothing in the file says how long a step took, or a value is no time; the text names it.
    """
    raw = _content(path)
    if raw.startswith(NUMPY):
        return _array(path, raw)
    text = _text(path, raw)
    if text.lstrip().startswith(("{", "[")) and (entries := _entries(text)) is not None:
        return _named(path, "entry", entries, column)
    found = None if column else read_log(text)
    if found is None:
        return _table(path, text, column)
    seconds = _times(path, "line", found.seconds, 1.0)
    return Samples(seconds, found.stride, found.source, found.notes)


def _content(path: Path) -> bytes:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise RefusedError(f"{path}: cannot be read ({error.strerror})") from None
    if not raw.strip():
        raise RefusedError(f"{path}: empty; give the seconds that each step took")
    return raw


def _text(path: Path, raw: bytes) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise RefusedError(f"{path}: neither text nor an array of NumPy") from None


def _array(path: Path, raw: bytes) -> Samples:
    try:
        found = np.load(io.BytesIO(raw), allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise RefusedError(f"{path}: an array that cannot be read ({error})") from None
    if found.ndim != 1 or found.dtype.kind not in "fiu":
        raise RefusedError(
            f"{path}: {found.dtype} of shape {found.shape}; give one number per step, in seconds"
        )
    return Samples(_times(path, "value", enumerate(found.tolist(), 1), 1.0), source="the array")


def _entries(text: str) -> list[tuple[int, dict[str, Any]]] | None:
    """Return the numbered objects of a JSON list; ``None`` if *text* is nothing like it."""
    try:
        found = json.loads(text)
    except json.JSONDecodeError:
        return None
    if isinstance(found, dict):
        found = found.get("log_history")
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        return None
    return list(enumerate(found, 1))


def _table(path: Path, text: str, column: str | None) -> Samples:
    """Read one column of numbers, or a table whose first line names its columns."""
    numbered = [(at, line) for at, line in enumerate(text.splitlines(), 1) if line.strip()]
    mark = next((mark for mark in ",;\t" if mark in numbered[0][1]), ",")
    cells = [(at, next(csv.reader([line], delimiter=mark))) for at, line in numbered]
    (_, first), *rows = cells
    if len(first) == 1 and _is_number(first[0]):
        first, rows = ["seconds"], cells
    names = [name.strip() for name in first]
    if any(map(_is_number, names)):
        raise RefusedError(f"{path}: {len(names)} columns without names; name them in line 1")
    if not any(_is_number(cell) for _, row in rows for cell in row):
        raise RefusedError(
            f"{path}: no line says how long a step took, or when it was done"
        )
    for at, row in rows:
        if len(row) != len(names):
            raise RefusedError(f"{path}, line {at}: {len(row)} values for {len(names)} columns")
    entries = [(at, dict(zip(names, row, strict=True))) for at, row in rows]
    return _named(path, "line", entries, column)


def _named(
    path: Path, kind: str, entries: Sequence[tuple[int, dict[str, Any]]], column: str | None
) -> Samples:
    """Take one column; entries that lack it are of another kind, such as an evaluation."""
    names = list(dict.fromkeys(name for _, entry in entries for name in entry))
    chosen = _column(path, names, column)
    found = [(at, entry[chosen]) for at, entry in entries if chosen in entry]
    unit = next((unit for end, unit in UNITS.items() if chosen.lower().endswith(end)), 1.0)
    return Samples(_times(path, kind, found, unit), source=f"the column {chosen}")


def _column(path: Path, names: Sequence[str], column: str | None) -> str:
    if column is not None:
        if column not in names:
            raise RefusedError(f"{path}: no column {column!r}; there are {', '.join(names)}")
        return column
    known = [name for name in names if name.lower().removesuffix(_unit_of(name)) in NAMES]
    found = names if len(names) == 1 else known
    if len(found) != 1:
        raise RefusedError(
            f"{path}: which column holds the time of a step? Say it with --column; there are "
            f"{', '.join(names) or 'none'}"
        )
    return found[0]


def _unit_of(name: str) -> str:
    return next((end for end in ("_s", *UNITS) if name.lower().endswith(end)), "")


def _times(
    path: Path, kind: str, found: Iterable[tuple[int, Any]], unit: float
) -> npt.NDArray[np.float64]:
    """Return *found* in seconds; each has to be a time."""
    seconds = []
    for at, value in found:
        if not _is_number(value) or not 0 < float(value) < math.inf:
            raise RefusedError(f"{path}, {kind} {at}: {value!r} is no time of a step")
        seconds.append(float(value) * unit)
    return np.array(seconds)


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return not isinstance(value, bool)
