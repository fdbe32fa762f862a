"""What a user gives about a training with changing batch sizes: two CSV files and a schedule."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from foretrace.errors import RefusedError
from foretrace.job.batch_schedule.epoch_costs import EpochCost
from foretrace.job.data_file import number_of, read_rows

if TYPE_CHECKING:
    from pathlib import Path

Z = 1.645
"""Half an interval of 90 %, in standard deviations."""
MOST_EPOCHS = 1_000_000
COLUMNS = ("batch_size", "seconds")


def read_epochs(path: Path) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Return the batch sizes of the epochs so far, and the seconds of the finished ones.

    The file has the columns ``batch_size`` and ``seconds``; the last epoch may still be running,
    its seconds are then empty.

    Raises
    ------
    RefusedError
        The file cannot be read, misses a column, or a row is no epoch.
    """
    rows = read_rows(path, COLUMNS)
    sizes = tuple(int(number_of(row, "batch_size", is_whole=True)) for row in rows)
    finished = rows if rows[-1][1]["seconds"] else rows[:-1]
    return sizes, tuple(number_of(row, "seconds") for row in finished)


def read_costs(path: Path) -> dict[int, EpochCost]:
    """Return what an epoch of each batch size takes.

    The file has the columns ``batch_size`` and ``seconds``, and where it is known ``error``, the
    share by which the seconds may be off in 90 % of cases.

    Raises
    ------
    RefusedError
        The file cannot be read, misses a column, a row is no cost, or a batch size comes twice.
    """
    costs: dict[int, EpochCost] = {}
    for row in read_rows(path, COLUMNS):
        place, cells = row
        size = int(number_of(row, "batch_size", is_whole=True))
        if size in costs:
            raise RefusedError(f"{place}: batch size {size} comes twice")
        cost = EpochCost(number_of(row, "seconds"))
        if cells.get("error"):
            cost = replace(cost, doubt=number_of(row, "error") / Z)
        costs[size] = cost
    return costs


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
        regime = re.fullmatch(r"([1-9]\d{0,8})[*x]([1-9]\d{0,5})", part)
        if regime is None:
            raise RefusedError(f"schedule: {part!r} is not BATCH*EPOCHS, such as 64*10")
        sizes += [int(regime[1])] * int(regime[2])
        if len(sizes) > MOST_EPOCHS:
            raise RefusedError(f"schedule: more than {MOST_EPOCHS:,} epochs")
    if not sizes:
        raise RefusedError("schedule: nothing in it; give BATCH*EPOCHS, such as '16*10 64*10'")
    return tuple(sizes)
