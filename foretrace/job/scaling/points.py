"""Speeds that were measured on numbers of workers and servers: a CSV file.

In: a file with the columns ``workers``, ``speed`` and, where the job has parameter servers,
``servers``. Out: the same as arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foretrace.errors import RefusedError
from foretrace.job.data_file import number_of, read_rows

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

NEEDED, OPTIONAL = ("workers", "speed"), "servers"


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
        The file is no table, lacks a column or has one too many, or a value is out of range; the
        text names the line.
    """
    rows = read_rows(path, NEEDED)
    columns = set(rows[0][1])
    if more := columns - {*NEEDED, OPTIONAL}:
        raise RefusedError(f"{path}: {min(more)!r} is no column of speeds; leave it out")
    workers, speeds, servers = (
        np.array([number_of(row, name, is_whole=name != "speed") for row in rows])
        if name in columns
        else np.ones(len(rows))
        for name in (*NEEDED, OPTIONAL)
    )
    return Points(workers, servers, speeds, has_servers=OPTIONAL in columns)
