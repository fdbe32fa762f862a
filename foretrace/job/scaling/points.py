"""Speeds that were measured on numbers of workers and servers: a CSV file.

In: a file with the columns ``workers``, ``speed`` and, where the job has parameter servers,
``servers``. Out: the same as arrays.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foretrace.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

COLUMNS = ("workers", "servers", "speed")
LARGEST = 1e9
WITHOUT_SERVERS = ("workers", "speed")


@dataclass(frozen=True)
class Points:
    """Speeds at some numbers of workers and servers; without servers these are all 1.

    ``speeds`` are steps per unit of time: those that the job takes, or of workers that do not wait
    for each other, those that all of them take together.
    """

    workers: Floats
    servers: Floats
    speeds: Floats
    has_servers: bool = True


def read_points(path: Path) -> Points:
    """Read the speeds at *path*.

    Raises
    ------
    RefusedError
        The file is empty, no text, lacks a column or has one too many, or a value is out of range;
        the text names the line.
    """
    lines = _lines(path)
    if not lines:
        raise RefusedError(f"{path}: empty; give a CSV with the columns {', '.join(COLUMNS)}")
    (_, header), *rows = lines
    names = [name.strip().lower() for name in header]
    if sorted(names) not in (sorted(COLUMNS), sorted(WITHOUT_SERVERS)):
        raise RefusedError(
            f"{path}: the first line names the columns {', '.join(COLUMNS)} (servers may be left "
            f"out), not {', '.join(header)}"
        )
    if not rows:
        raise RefusedError(f"{path}: no speeds below the names of the columns")
    found = np.array([_point(path, number, names, row) for number, row in rows])
    workers, servers, speeds = found.T
    return Points(workers, servers, speeds, has_servers="servers" in names)


def _lines(path: Path) -> list[tuple[int, list[str]]]:
    """Return the lines of *path* that say something, numbered."""
    try:
        text = path.read_text("utf-8-sig")
        rows = list(csv.reader(text.splitlines(), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise RefusedError(f"{path}: no CSV ({error})") from None
    return [(at, row) for at, row in enumerate(rows, 1) if any(cell.strip() for cell in row)]


def _point(
    path: Path, number: int, names: Sequence[str], row: Sequence[str]
) -> tuple[float, float, float]:
    if len(row) != len(names):
        raise RefusedError(f"{path}, line {number}: {len(row)} values under {len(names)} names")
    cells = {"servers": "1", **dict(zip(names, row, strict=True))}
    workers, servers, speed = (_positive(path, number, name, cells) for name in COLUMNS)
    return workers, servers, speed


def _positive(path: Path, number: int, name: str, cells: Mapping[str, str]) -> float:
    """Return a value above 0; of workers and servers, a whole one."""
    try:
        value = float(cells[name])
    except ValueError:
        value = math.nan
    is_legal = 1 / LARGEST <= value <= LARGEST and (name == "speed" or value == int(value))
    if not is_legal:
        needed = f"a number from {1 / LARGEST:g} to {LARGEST:g}"
        needed = needed if name == "speed" else f"a whole number from 1 to {LARGEST:g}"
        raise RefusedError(f"{path}, line {number}: {name} is {cells[name]!r}; give {needed}")
    return value
