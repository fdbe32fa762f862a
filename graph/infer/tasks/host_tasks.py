"""Host tasks: operator segments and API calls of every host thread.

In: the trace's events of one rank. Out: arrays in (thread, start) order.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numba import njit

from foretrace.graph.infer.events import match_names
from foretrace.graph.infer.self_time import nest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from foretrace.graph.infer.events import Events

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]

_GROUPING = re.compile(r"^(ProfilerStep#|Optimizer\.|##)")
"""Names that only group others; old recordings keep such annotations among the operators."""
_UNITS = re.compile(r"^enumerate\(DataLoader\)|^\[DALI\]\[Executor\] Run(CPU|Mixed|GPU)$")
SYNC_CALLS = re.compile(
    r"^[a-z]+(Device|Ctx|Stream|Event)Synchronize|^aclrtSynchronize(Device|Stream|Event)"
    r"|^(ur|pi)(QueueFinish|Events?Wait)$|^ze(CommandQueue|CommandListHost|EventHost|Fence\w*)Synchronize"
    r"|^(cuda|hip|musa)Free$"  # memory is given back when the device is done with it
)
"""Of CUDA and those that took over its names, of Ascend, and of Intel's runtimes."""
RECORD_EVENT_CALLS = re.compile(r"^[a-z]+EventRecord")
WAIT_EVENT_CALLS = re.compile(r"^[a-z]+StreamWaitEvent|^(ur|pi)EnqueueEventsWait")


@dataclass(frozen=True)
class HostTasks:
    """Host tasks of one rank; ``event`` is the row in the rank's events.

    ``operator`` is the event row of the innermost operator (the task's own when it is a
    segment of one, −1 when unknown); ``is_call`` marks API calls; ``parent`` has one entry
    per event: the enclosing operator's row, −1 at the top.
    """

    event: Ints
    thread: Ints
    start_ns: Ints
    end_ns: Ints
    is_call: Flags
    operator: Ints
    parent: Ints

    def __len__(self) -> int:
        """Return the number of host tasks."""
        return len(self.event)

    @cached_property
    def spans(self) -> dict[int, slice]:
        """Where the tasks of each thread lie, by thread."""
        first = np.flatnonzero(np.diff(self.thread, prepend=self.thread[:1] - 1))
        bounds = pairwise([*first.tolist(), len(self)])
        return {int(self.thread[begin]): slice(begin, end) for begin, end in bounds}

    def tasks_of(self, thread: int) -> Ints:
        """Return the tasks of one thread, in order."""
        span = self.spans.get(thread, slice(0, 0))
        return np.arange(span.start, span.stop)

    def on(self, threads: Iterable[int]) -> Flags:
        """Tell which tasks are on one of *threads*."""
        flags = np.zeros(len(self), bool)
        for thread in threads:
            flags[self.spans.get(thread, slice(0, 0))] = True
        return flags

    @cached_property
    def own_event(self) -> Ints:
        """Per task the event row that speaks for it: its operator's, else its own."""
        return np.where(self.operator >= 0, self.operator, self.event)


def cut_host_tasks(events: Events, markers: Ints) -> HostTasks:
    """Cut the host threads of one rank into tasks.

    Annotations group work and are no work themselves: time spent directly in one is a gap.
    Exceptions are the loader's ranges, which are work, and *markers*, the rows of the annotations
    that begin a step: each becomes a task of length 0.
    """
    call = events.is_kind("runtime")
    operator = events.is_kind("op") & ~match_names(events.names, _GROUPING)[events.name]
    operator |= events.is_kind("annotation") & events.named(_UNITS)
    marker = np.zeros(len(events), bool)
    marker[markers] = True
    rows = np.flatnonzero(call | operator | marker)
    rows = rows[_sort_nested(events, rows, marker[rows], call[rows])]
    thread, start = events.thread[rows], events.start_ns[rows]
    end = start + np.where(marker[rows], 0, events.duration_ns[rows])
    pieces = nest(thread, start, end, call[rows] | marker[rows])
    parent = np.full(len(events), -1, np.int64)
    parent[rows] = np.where(pieces.parent >= 0, rows[pieces.parent], -1)
    event = rows[pieces.event]
    return HostTasks(
        event=event,
        thread=thread[pieces.event],
        start_ns=pieces.start_ns,
        end_ns=pieces.end_ns,
        is_call=call[event],
        operator=np.where(call[event] | marker[event], parent[event], event),
        parent=parent,
    )


def _sort_nested(events: Events, rows: Ints, marker: Flags, call: Flags) -> Ints:
    """Sort by thread, start, markers first, then longest first, operators before calls.

    Recordings come sorted by start, so that only events which start together change places.
    """
    thread, start = events.thread[rows], events.start_ns[rows]
    if (np.diff(start) < 0).any():
        order = np.lexsort((start, thread))
    else:
        order = np.argsort(thread, kind="stable")
    longest = np.where(marker, np.iinfo(np.int64).max, events.duration_ns[rows])
    _settle_ties(order, thread, start, longest, call)
    return order


@njit(cache=True)
def _settle_ties(order: Ints, thread: Ints, start: Ints, length: Ints, call: Flags) -> None:
    """Insertion-sort neighbours of one thread and start by (−length, call), stably."""
    for i in range(1, len(order)):
        row = order[i]
        place = i
        while place > 0:
            other = order[place - 1]
            if thread[other] != thread[row] or start[other] != start[row]:
                break
            if length[other] > length[row]:
                break
            if length[other] == length[row] and call[other] <= call[row]:
                break
            order[place] = other
            place -= 1
        order[place] = row


def find_enclosing(host: HostTasks, flag: Flags) -> Ints:
    """Return per host task the event row at or above its own that is flagged; −1: none."""
    enclosing: Ints = _climb(flag, host.parent, host.own_event)
    return enclosing


@njit(cache=True)
def _climb(flag: Flags, parent: Ints, begin: Ints) -> Ints:
    reached = np.empty(len(begin), np.int64)
    for i in range(len(begin)):
        at = begin[i]
        while at >= 0 and not flag[at]:
            at = parent[at]
        reached[i] = at
    return reached
