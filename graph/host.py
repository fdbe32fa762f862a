"""Host tasks: operator segments and API calls of every host thread.

In: the trace's events of one rank. Out: arrays in (thread, start) order.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foretrace.graph.segments import nest

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

_GROUPING = re.compile(r"^(ProfilerStep#|Optimizer\.|##)")
_UNITS = re.compile(r"^enumerate\(DataLoader\)|^\[DALI\]\[Executor\] Run(CPU|Mixed|GPU)$")
SYNC_CALLS = re.compile(
    r"^(cuda|hip)(Device|Stream|Event)Synchronize|^cu(Ctx|Stream|Event)Synchronize"
)
WAIT_EVENT_CALLS = re.compile(r"^(cuda|hip|cu)StreamWaitEvent")
RECORD_CALLS = re.compile(r"^(cuda|hip|cu)EventRecord")


@dataclass(frozen=True)
class Host:
    """Host tasks of one rank; ``event`` is the row in the rank's events.

    ``operator`` is the event row of the innermost operator (the task's own when it is a
    segment of one, −1 when unknown); ``is_call`` marks API calls; ``parent`` has one entry
    per event: the enclosing operator's row, −1 at the top.
    """

    event: Ints
    thread: Ints
    start_ns: Ints
    end_ns: Ints
    is_call: NDArray[np.bool_]
    operator: Ints
    parent: Ints

    def __len__(self) -> int:
        """Return the number of host tasks."""
        return len(self.event)


def is_grouping(names: pd.Index) -> NDArray[np.bool_]:
    """Tell which operator names only group others: old traces record annotations as operators."""
    return np.array([bool(_GROUPING.match(str(name))) for name in names], dtype=bool)


def matching(column: pd.Series, pattern: re.Pattern[str]) -> NDArray[np.bool_]:
    """Rows of a category *column* whose value matches *pattern*, tested once per category.

    >>> import pandas as pd
    >>> matching(pd.Series(["ab", "b"], dtype="category"), re.compile("^a")).tolist()
    [True, False]
    """
    values = column.cat.categories
    hit = np.fromiter((bool(pattern.search(str(v))) for v in values), dtype=bool, count=len(values))
    return np.append(hit, [False])[column.cat.codes.to_numpy()]


def kind_is(events: pd.DataFrame, *kinds: str) -> NDArray[np.bool_]:
    """Rows whose ``kind`` is one of *kinds*."""
    values = events["kind"].cat.categories
    hit = np.fromiter((v in kinds for v in values), dtype=bool, count=len(values))
    return np.append(hit, [False])[events["kind"].cat.codes.to_numpy()]


def host_tasks(events: pd.DataFrame, markers: Ints) -> Host:
    """Cut the host threads of one rank into tasks.

    Annotations group work and are no work themselves: time spent directly in one is a gap.
    Exceptions are the loader's ranges, which are work, and *markers*, the rows of the annotations
    that begin a step: each becomes a task of length 0.
    """
    grouping = np.append(is_grouping(events["name"].cat.categories), [False])
    codes = events["name"].cat.codes.to_numpy()
    call = kind_is(events, "runtime")
    operator = kind_is(events, "op") & ~grouping[codes]
    operator |= kind_is(events, "annotation") & matching(events["name"], _UNITS)
    marker = np.zeros(len(events), bool)
    marker[markers] = True
    rows = np.flatnonzero(call | operator | marker)
    start = events["start_ns"].to_numpy()[rows]
    end = start + np.where(marker[rows], 0, events["duration_ns"].to_numpy()[rows])
    thread = events["thread"].to_numpy()[rows]
    order = np.lexsort((call[rows], np.where(marker[rows], np.iinfo(np.int64).min, -end), start, thread))
    rows, start, end, thread = rows[order], start[order], end[order], thread[order]
    pieces = nest(thread, start, end, call[rows] | marker[rows])
    parent_of = np.where(pieces.parent >= 0, rows[pieces.parent], -1)
    parent = np.full(len(events), -1, np.int64)
    parent[rows] = parent_of
    event = rows[pieces.event]
    return Host(
        event=event,
        thread=thread[pieces.event],
        start_ns=pieces.start_ns,
        end_ns=pieces.end_ns,
        is_call=call[event],
        operator=np.where(call[event] | marker[event], parent[event], event),
        parent=parent,
    )


def matching_names(column: pd.Series, text: str) -> NDArray[np.bool_]:
    """Rows of a category *column* whose value contains *text*."""
    return matching(column, re.compile(re.escape(text)))
