"""What a user gives about a training with changing batch sizes: two CSV files and a schedule."""

from __future__ import annotations

import csv
import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from foretrace.errors import RefusedError
from foretrace.job.batch_schedule.epoch_costs import Cost

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

Z = 1.645
"""Half an interval of 90 %, in standard deviations."""
MOST_EPOCHS = 1_000_000
LEAST, MOST = 1e-9, 1e9
"""Seconds of an epoch, and shares; beyond them a number is a mistake."""


def read_epochs(path: Path) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Return the batch sizes of the epochs so far, and the seconds of the finished ones.

    The file has the columns ``batch_size`` and ``seconds``; the last epoch may still be running,
    its seconds are then empty.

    Raises
    ------
    RefusedError
        The file cannot be read, misses a column, or a row is no epoch.
    """
    rows = _rows(path, ("batch_size", "seconds"))
    sizes = tuple(_whole(path, line, "batch_size", row["batch_size"]) for line, row in rows)
    finished = rows[:-1] if not rows[-1][1]["seconds"] else rows
    seconds = tuple(_positive(path, line, "seconds", row["seconds"]) for line, row in finished)
    return sizes, seconds


def read_costs(path: Path) -> dict[int, Cost]:
    """Return what an epoch of each batch size takes.

    The file has the columns ``batch_size`` and ``seconds``, and where it is known ``error``, the
    share by which the seconds may be off in 90 % of cases.

    Raises
    ------
    RefusedError
        The file cannot be read, misses a column, a row is no cost, or a batch size comes twice.
    """
    found: dict[int, Cost] = {}
    for line, row in _rows(path, ("batch_size", "seconds")):
        size = _whole(path, line, "batch_size", row["batch_size"])
        if size in found:
            raise RefusedError(f"{path}:{line}: batch size {size} comes twice")
        seconds = _positive(path, line, "seconds", row["seconds"])
        error = row.get("error")
        known = Cost(seconds)
        doubt = _positive(path, line, "error", error) / Z if error else known.doubt
        found[size] = replace(known, doubt=doubt)
    return found


def parse_schedule(text: str) -> tuple[int, ...]:
    """Return the batch size of every epoch of a schedule.

    >>> parse_schedule("16*2 64*1")
    (16, 16, 64)

    Raises
    ------
    RefusedError
        A part of the text is not BATCH*EPOCHS.
    """
    sizes: list[int] = []
    for part in text.replace(",", " ").split():
        found = re.fullmatch(r"([1-9]\d{0,8})[*x]([1-9]\d{0,5})", part)
        if found is None:
            raise RefusedError(f"schedule: {part!r} is not BATCH*EPOCHS, such as 64*10")
        sizes += [int(found[1])] * int(found[2])
        if len(sizes) > MOST_EPOCHS:
            raise RefusedError(f"schedule: more than {MOST_EPOCHS:,} epochs")
    if not sizes:
        raise RefusedError("schedule: nothing in it; give BATCH*EPOCHS, such as '16*10 64*10'")
    return tuple(sizes)


def _rows(path: Path, columns: Sequence[str]) -> list[tuple[int, dict[str, str]]]:
    """Return each row of a CSV file with its line; there is at least one."""
    try:
        head, *rows = csv.reader(path.read_text("utf-8-sig").splitlines(), strict=True)
    except OSError as error:
        raise RefusedError(f"{path}: cannot be read ({error.strerror})") from None
    except (csv.Error, ValueError):  # no text, or nothing in it
        raise RefusedError(f"{path}: is no CSV with a head and rows") from None
    names = [name.strip() for name in head]
    if twice := [name for name in names if names.count(name) > 1]:
        raise RefusedError(f"{path}:1: two columns are called {twice[0]!r}; rename one")
    missing = [column for column in columns if column not in names]
    if missing:
        raise RefusedError(f"{path}:1: there is no column {missing[0]!r}")
    numbered = [(line, row) for line, row in enumerate(rows, 2) if any(map(str.strip, row))]
    if not numbered:
        raise RefusedError(f"{path}: there is no row below the head")
    return [(line, _named(path, line, names, row)) for line, row in numbered]


def _named(path: Path, line: int, names: Sequence[str], row: Sequence[str]) -> dict[str, str]:
    if len(row) != len(names):
        raise RefusedError(f"{path}:{line}: {len(row)} values, expected {len(names)}")
    return {name: value.strip() for name, value in zip(names, row, strict=True)}


def _whole(path: Path, line: int, column: str, text: str) -> int:
    if not re.fullmatch(r"[1-9]\d{0,8}", text):
        raise RefusedError(f"{path}:{line}: {column} is {text!r}, expected a whole number from 1")
    return int(text)


def _positive(path: Path, line: int, column: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not LEAST <= value <= MOST:
        raise RefusedError(
            f"{path}:{line}: {column} is {text!r}, expected a number above 0, at most {MOST:g}"
        )
    return value
