"""The events of one rank as arrays: what every later stage of graph building looks at.

In: the trace's table. Out: its columns without copies, category columns as codes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import re

    import pandas as pd
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Events:
    """Rows of one rank in recorded order; ``name`` and ``kind`` are codes (−1: missing)."""

    frame: pd.DataFrame
    names: list[str]
    name: Ints
    kinds: list[str]
    kind: Ints
    thread: Ints
    start_ns: Ints
    duration_ns: Ints
    correlation: Ints

    def __len__(self) -> int:
        """Return the number of events."""
        return len(self.name)

    def column(self, name: str) -> Any:
        """Return any other column as an array."""
        return self.frame[name].to_numpy()

    def category(self, name: str, rows: Ints) -> Any:
        """Return *rows* of a category column."""
        return self.frame[name].array[rows]

    def is_kind(self, *kinds: str) -> Flags:
        """Tell which rows are one of *kinds*."""
        flags: Flags = np.array([*(kind in kinds for kind in self.kinds), False])[self.kind]
        return flags

    def named(self, pattern: re.Pattern[str], rows: Ints | None = None) -> Flags:
        """Tell which of *rows* (all by default) have a name in which *pattern* is found."""
        hits = match_names(self.names, pattern)
        if not hits.any():  # most recordings lack most names
            return np.zeros(len(self) if rows is None else len(rows), bool)
        flags: Flags = hits[self.name if rows is None else self.name[rows]]
        return flags


def select_events(trace_events: pd.DataFrame, rank: int | None = None) -> Events:
    """Return the events of one *rank*; of the only one where it is ``None``."""
    frame = trace_events
    if rank is not None:
        frame = frame[frame["rank"].to_numpy() == rank].reset_index(drop=True)
    name, kind = frame["name"].array, frame["kind"].array
    return Events(
        frame=frame,
        names=[str(each) for each in name.categories.tolist()],
        name=name.codes,
        kinds=[str(each) for each in kind.categories.tolist()],
        kind=kind.codes,
        thread=frame["thread"].to_numpy(),
        start_ns=frame["start_ns"].to_numpy(),
        duration_ns=frame["duration_ns"].to_numpy(),
        correlation=frame["correlation"].to_numpy(),
    )


def match_names(names: list[str], pattern: re.Pattern[str]) -> Flags:
    """Tell per code whether *pattern* is found in its name; the last entry is for code −1.

    >>> import re
    >>> match_names(["ab", "b"], re.compile("^a")).tolist()
    [True, False, False]
    """
    return np.array([*(pattern.search(name) is not None for name in names), False])


def find_last(keys: Ints, wanted: Ints) -> Ints:
    """Return for each of *wanted* the position of the last equal key; −1 where there is none.

    >>> find_last(np.array([7, 5, 7]), np.array([5, 7, 6])).tolist()
    [1, 2, -1]
    """
    if not len(keys):
        return np.full(len(wanted), -1, np.int64)
    order = np.argsort(keys, kind="stable")
    slot = np.searchsorted(keys[order], wanted, side="right") - 1
    last = np.where(slot >= 0, order[slot], -1)
    return np.where(keys[last] == wanted, last, -1)
