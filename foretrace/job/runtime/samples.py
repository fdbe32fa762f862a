"""Times of steps, whatever wrote them down: a table, an array, or what a training printed.

In: a file. Out: seconds per step of each sample, and how many steps a sample is the mean of.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from foretrace.errors import RefusedError
from foretrace.job.data_file import (
    as_number,
    json_entries,
    name_file,
    named_rows,
    numbered_lines,
    read_content,
    read_table,
)
from foretrace.job.runtime.printed_times import keep_in_order, read_printed_times

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from foretrace.job.data_file import Entry

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
        JSON is as `foretrace.job.data_file.json_entries` says.
    column
        The column or key that holds the times; needed where several might.

    Raises
    ------
    RefusedError
        Nothing in the file says how long a step took, or a value is no time; the text names it.
    """
    with name_file(path):
        content = read_content(path, "the seconds that each step took")
        return _of_text(content, column) if isinstance(content, str) else _of_array(content)


def _of_array(array: npt.NDArray[Any]) -> Samples:
    if array.ndim != 1 or array.dtype.kind not in "fiu":
        raise RefusedError(
            f"{array.dtype} of shape {array.shape}; give one number per step, in seconds"
        )
    return Samples(_seconds("value", enumerate(array.tolist(), 1)), source="the array")


def _of_text(text: str, column: str | None) -> Samples:
    if (entries := json_entries(text)) is not None:
        return _of_entries("entry", entries, column)
    printed = None if column else read_printed_times(text)
    if printed is None:
        return _of_entries("line", _table(text), column)
    seconds = _seconds("line", printed.seconds)
    return Samples(seconds, printed.stride, printed.source, printed.notes)


def _table(text: str) -> list[Entry]:
    """Read one column of numbers, or a table whose first line names its columns."""
    names, rows = read_table(numbered_lines(text), ("seconds",))
    if all(as_number(cell) is None for _, row in rows for cell in row):
        raise RefusedError("no line says how long a step took, or when it was done")
    return named_rows(names, rows)


def _of_entries(kind: str, entries: Sequence[Entry], column: str | None) -> Samples:
    """Take one column; entries that lack it are of another kind, such as an evaluation."""
    names = list(dict.fromkeys(name for _, entry in entries for name in entry))
    chosen = _column(names, column)
    times = [(at, _step(entry), entry[chosen]) for at, entry in entries if chosen in entry]
    kept, stride, notes = keep_in_order(times)
    seconds = _seconds(kind, [(at, value) for at, _, value in kept], _unit(chosen))
    apart = f"{stride} steps lie between two values: each is taken for the mean of as many"
    return Samples(
        seconds, stride, f"the column {chosen}", (*notes, *([apart] if stride > 1 else []))
    )


def _step(entry: dict[str, Any]) -> int | None:
    """Return the number of the step that an entry is about, where it has one."""
    lower = {name.lower(): value for name, value in entry.items()}
    step = as_number(next((lower[name] for name in STEPS if name in lower), None))
    return int(step) if step is not None and abs(step) < MOST_STEPS else None


def _column(names: Sequence[str], column: str | None) -> str:
    if column is not None:
        if column not in names:
            raise RefusedError(f"no column {column!r}; there are {', '.join(names)}")
        return column
    of_times = [name for name in names if _words(name).removesuffix(_unit_of(name)) in NAMES]
    candidates = names if len(names) == 1 else of_times
    if len(candidates) != 1:
        raise RefusedError(
            "which column holds the time of a step? Say it with --column; there are "
            f"{', '.join(names) or 'none'}"
        )
    return candidates[0]


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


def _seconds(
    kind: str, values: Iterable[tuple[int, Any]], unit: float = 1.0
) -> npt.NDArray[np.float64]:
    """Return numbered *values* in seconds; each has to be the time of a step."""
    seconds = []
    for at, value in values:
        number = as_number(value)
        if number is None or not SHORTEST_S <= number * unit <= LONGEST_S:
            shown = textwrap.shorten(repr(value), 40)
            raise RefusedError(f"{kind} {at}: {shown} is no time of a step")
        seconds.append(number * unit)
    return np.array(seconds)
