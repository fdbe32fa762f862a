"""Ranges written as a begin and an end, as the Chrome trace format allows, in; complete events out.

An end closes the latest open range of its thread; one with a name, the latest of that name.
"""

from __future__ import annotations

from collections import defaultdict
from decimal import Decimal, InvalidOperation
from itertools import groupby
from typing import Any

Event = dict[str, Any]


def pair_ranges(events: list[Event]) -> tuple[list[Event], int, int]:
    """Return the complete events, and how many begins and how many ends were left over.

    Parameters
    ----------
    events
        Decoded events of every phase; times are numbers or their text.

    Examples
    --------
    >>> pair_ranges([{"ph": "B", "name": "a", "ts": 1}, {"ph": "E", "ts": 3}])
    ([{'ph': 'X', 'name': 'a', 'ts': 1, 'dur': Decimal('2'), 'args': {}}], 0, 0)
    """
    threads: dict[tuple[str, str], list[tuple[Decimal, Event]]] = defaultdict(list)
    begins = ends = 0
    for event in events:
        if event.get("ph") not in ("B", "E"):
            continue
        moment = _moment(event.get("ts"))
        if moment is not None:
            thread = (str(event.get("pid")), str(event.get("tid")))
            threads[thread].append((moment, event))
        elif event["ph"] == "B":
            begins += 1
        else:
            ends += 1
    complete: list[Event] = []
    for marks in threads.values():
        paired, open_begins, lone_ends = _pair_thread(sorted(marks, key=lambda mark: mark[0]))
        complete += paired
        begins += open_begins
        ends += lone_ends
    return complete, begins, ends


def _moment(value: Any) -> Decimal | None:
    try:
        moment = Decimal(str(value))
    except InvalidOperation:
        return None
    return moment if moment.is_finite() else None


def _pair_thread(marks: list[tuple[Decimal, Event]]) -> tuple[list[Event], int, int]:
    """Pair the marks of one thread, by time; at one moment, what began earlier ends first."""
    complete: list[Event] = []
    running: list[tuple[Decimal, Event]] = []
    lone_ends = 0
    for moment, group in groupby(marks, key=lambda mark: mark[0]):
        here = [event for _, event in group]
        waiting = []
        for end in (event for event in here if event["ph"] == "E"):
            begin = _take_begin(running, end)
            if begin is None:
                waiting.append(end)
            else:
                complete.append(_join(*begin, moment, end))
        running += [(moment, event) for event in here if event["ph"] == "B"]
        for end in waiting:
            begin = _take_begin(running, end)
            if begin is None:
                lone_ends += 1
            else:
                complete.append(_join(*begin, moment, end))
    return complete, len(running), lone_ends


def _take_begin(running: list[tuple[Decimal, Event]], end: Event) -> tuple[Decimal, Event] | None:
    """Remove from *running* what *end* closes, and return it."""
    name = end.get("name")
    for place in range(len(running) - 1, -1, -1):
        if name in (None, "", running[place][1].get("name")):
            return running.pop(place)
    return None


def _join(began: Decimal, begin: Event, moment: Decimal, end: Event) -> Event:
    arguments = [event.get("args") for event in (end, begin)]
    merged = {k: v for some in arguments if isinstance(some, dict) for k, v in some.items()}
    return begin | {"ph": "X", "dur": moment - began, "args": merged}
