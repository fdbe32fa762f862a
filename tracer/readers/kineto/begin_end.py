"""Ranges written as a begin and an end, as the Chrome trace format allows, in; complete events out.

An end closes the latest open range of its thread; one with a name, the latest of that name.
"""

from __future__ import annotations

from collections import defaultdict
from decimal import Decimal, InvalidOperation
from itertools import groupby
from typing import Any

from foretrace.tracer.readers.columns import LATEST_NS

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
        return moment if abs(moment) <= LATEST_NS else None
    except (InvalidOperation, ValueError):  # neither is a number
        return None


class _Running:
    """Ranges that have begun and not ended: the latest, and the latest of a name, at once."""

    def __init__(self) -> None:
        self._begins: dict[int, tuple[Decimal, Event]] = {}
        self._of_name: dict[str, list[int]] = defaultdict(list)
        self._began = 0

    def __len__(self) -> int:
        return len(self._begins)

    def begin(self, moment: Decimal, event: Event) -> None:
        self._begins[self._began] = (moment, event)
        self._of_name[_name(event)].append(self._began)
        self._began += 1

    def take(self, end: Event) -> tuple[Decimal, Event] | None:
        """Remove what *end* closes, and return it."""
        name = _name(end)
        if not name:
            return self._begins.popitem()[1] if self._begins else None
        places = self._of_name[name]
        while places:
            begun = self._begins.pop(places.pop(), None)
            if begun is not None:
                return begun
        return None


def _name(event: Event) -> str:
    name = event.get("name")
    return "" if name is None else str(name)


def _pair_thread(marks: list[tuple[Decimal, Event]]) -> tuple[list[Event], int, int]:
    """Pair the marks of one thread, by time; at one moment, what began earlier ends first."""
    complete: list[Event] = []
    running = _Running()
    lone_ends = 0
    for moment, group in groupby(marks, key=lambda mark: mark[0]):
        here = [event for _, event in group]
        waiting = []
        for end in (event for event in here if event["ph"] == "E"):
            begin = running.take(end)
            if begin is None:
                waiting.append(end)
            else:
                complete.append(_join(*begin, moment, end))
        for event in here:
            if event["ph"] == "B":
                running.begin(moment, event)
        for end in waiting:
            begin = running.take(end)
            if begin is None:
                lone_ends += 1
            else:
                complete.append(_join(*begin, moment, end))
    return complete, len(running), lone_ends


def _join(began: Decimal, begin: Event, moment: Decimal, end: Event) -> Event:
    arguments = [event.get("args") for event in (end, begin)]
    merged = {k: v for some in arguments if isinstance(some, dict) for k, v in some.items()}
    return begin | {"ph": "X", "dur": moment - began, "args": merged}
