"""Times of steps, whatever wrote them down: a table, an array, or what a training printed.

In: a file. Out: seconds per step of each sample, and how many steps a sample is the mean of.
"""

from __future__ import annotations

import csv
import io
import json
import re
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from foretrace.errors import RefusedError
from foretrace.job.runtime.log_parser import in_order, read_log

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from foretrace.job.runtime.log_parser import Said

NUMPY = b"\x93NUMPY"
UNITS = {"_ms": 1e-3, "_us": 1e-6, "_ns": 1e-9}
NAMES = ("seconds", "s", "step_time", "iter_time", "iteration_time", "time_per_step", "duration")
"""Columns that hold times of steps, where a table has several; a unit may follow: step_time_ms."""
STEPS = ("step", "iteration", "iter", "global_step")
"""Columns that number the steps."""
SHORTEST_S, LONGEST_S = 1e-9, 1e9
"""No step takes less or more."""
MOST_STEPS = 10**15
"""Of one job."""


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
        JSON is a list of objects, an object with such a list as its ``log_history``, or an object
        on every line.
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
        raise RefusedError(f"{path}: neither text in UTF-8 nor an array of NumPy") from None


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
    except (ValueError, RecursionError):
        found = _json_lines(text)
    if isinstance(found, dict):
        found = found.get("log_history")
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        return None
    return list(enumerate(found, 1))


def _json_lines(text: str) -> list[Any] | None:
    """Return the JSON of each line, if each is some."""
    try:
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    except (ValueError, RecursionError):
        return None


def _table(path: Path, text: str, column: str | None) -> Samples:
    """Read one column of numbers, or a table whose first line names its columns."""
    cells = _cells(path, text)
    (_, first), *rows = cells
    if len(first) == 1 and _is_number(first[0]):
        first, rows = ["seconds"], cells
    names = [name.strip() for name in first]
    if any(map(_is_number, names)):
        raise RefusedError(f"{path}: {len(names)} columns without names; name them in line 1")
    if not any(_is_number(cell) for _, row in rows for cell in row):
        raise RefusedError(f"{path}: no line says how long a step took, or when it was done")
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise RefusedError(f"{path}: two columns are called {twice[0]!r}; rename one")
    for at, row in rows:
        if len(row) != len(names):
            raise RefusedError(f"{path}, line {at}: {len(row)} values for {len(names)} columns")
    entries = [(at, dict(zip(names, row, strict=True))) for at, row in rows]
    return _named(path, "line", entries, column)


def _cells(path: Path, text: str) -> list[tuple[int, list[str]]]:
    """Return the numbered lines of a table, each cut into its cells."""
    numbered = [(at, line) for at, line in enumerate(text.splitlines(), 1) if line.strip()]
    mark = next((mark for mark in ",;\t" if mark in numbered[0][1]), ",")
    try:
        return [(at, next(csv.reader([line], delimiter=mark))) for at, line in numbered]
    except csv.Error as error:
        raise RefusedError(f"{path}: no table ({error})") from None


def _named(
    path: Path, kind: str, entries: Sequence[tuple[int, dict[str, Any]]], column: str | None
) -> Samples:
    """Take one column; entries that lack it are of another kind, such as an evaluation."""
    names = list(dict.fromkeys(name for _, entry in entries for name in entry))
    chosen = _column(path, names, column)
    said = [(at, _step(entry), entry[chosen]) for at, entry in entries if chosen in entry]
    kept, stride, notes = _in_order(path, said)
    seconds = _times(path, kind, [(at, value) for at, _, value in kept], _unit(chosen))
    apart = f"{stride} steps lie between two values: each is taken for the mean of as many"
    return Samples(
        seconds, stride, f"the column {chosen}", (*notes, *([apart] if stride > 1 else []))
    )


def _in_order(path: Path, said: Sequence[Said]) -> tuple[list[Said], int, tuple[str, ...]]:
    try:
        return in_order(said)
    except RefusedError as error:
        raise RefusedError(f"{path}: {error}") from None


def _step(entry: dict[str, Any]) -> int | None:
    """Return the number of the step that an entry is about, where it has one."""
    known = {name.lower(): value for name, value in entry.items()}
    value: Any = next((known[name] for name in STEPS if name in known), None)
    return int(float(value)) if _is_number(value) and abs(float(value)) < MOST_STEPS else None


def _column(path: Path, names: Sequence[str], column: str | None) -> str:
    if column is not None:
        if column not in names:
            raise RefusedError(f"{path}: no column {column!r}; there are {', '.join(names)}")
        return column
    known = [name for name in names if _words(name).removesuffix(_unit_of(name)) in NAMES]
    found = names if len(names) == 1 else known
    if len(found) != 1:
        raise RefusedError(
            f"{path}: which column holds the time of a step? Say it with --column; there are "
            f"{', '.join(names) or 'none'}"
        )
    return found[0]


def _unit(name: str) -> float:
    """Return the seconds of the unit that a column names.

    >>> _unit("step_time_ms"), _unit("Step time (ms)"), _unit("seconds")
    (0.001, 0.001, 1.0)
    """
    return UNITS.get(_unit_of(f"_{name}"), 1.0)


def _unit_of(name: str) -> str:
    return next((end for end in ("_s", *UNITS) if _words(name).endswith(end)), "")


def _words(name: str) -> str:
    return re.sub(r"[\W_]+", "_", name.lower()).rstrip("_")


def _times(
    path: Path, kind: str, found: Iterable[tuple[int, Any]], unit: float
) -> npt.NDArray[np.float64]:
    """Return *found* in seconds; each has to be a time."""
    seconds = []
    for at, value in found:
        if not _is_number(value) or not SHORTEST_S <= float(value) * unit <= LONGEST_S:
            raise RefusedError(f"{path}, {kind} {at}: {_short(value)} is no time of a step")
        seconds.append(float(value) * unit)
    return np.array(seconds)


def _short(value: Any) -> str:
    return textwrap.shorten(repr(value), 40)


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return not isinstance(value, bool)
