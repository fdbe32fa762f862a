"""Which device tasks event synchronisations return after, those of earlier steps included.

In: `InferredRank` and `Selection`. Out: pairs of graph rows. A call of the window's first steps may
wait for work of the steps before, which the window's last steps stand for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foretrace.graph.infer.tasks.api_calls import EVENT

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foretrace.graph.assemble.selection import Selection
    from foretrace.graph.infer.rank import InferredRank

    Ints = NDArray[np.int64]


class EventReturns(NamedTuple):
    """Graph rows of tasks and calls; the call lies ``shift`` repetitions after the task."""

    task: Ints
    call: Ints
    return_ns: Ints
    shift: Ints


class _Place(NamedTuple):
    """Where an awaited task is: so many steps before the call, on a lane, nth from its step's end.

    Such a place holds for the same synchronisation of every step.
    """

    back: int
    lane: int
    from_end: int


def return_after_events(rank: InferredRank, chosen: Selection) -> EventReturns:
    """Return the task that each event synchronisation of the window returns after."""
    waits = rank.waits
    calls = chosen.host[waits.wait[chosen.host] == EVENT]
    task = waits.event_task[calls]
    rows = np.where(task >= 0, chosen.device_row[task], -1) if len(chosen.device_row) else task
    shift = np.zeros(len(calls), np.int64)
    outside = rows < 0
    if outside.any() and len(rank.markers) and len(rank.devices.launching):
        rows[outside] = _wrap(rank, chosen, calls[outside])
        shift[outside] = 1
    paired = rows >= 0
    calls = calls[paired]
    return EventReturns(rows[paired], chosen.host_row[calls], waits.return_ns[calls], shift[paired])


def _wrap(rank: InferredRank, chosen: Selection, calls: Ints) -> Ints:
    """Return what at the window's end stands for the tasks of *calls* before it; −1: nothing."""
    launched = _sort_by_step(rank)
    syncs = np.flatnonzero(rank.waits.wait == EVENT)
    step = _tell_step(rank, rank.host.start_ns[syncs])
    nth = _count_within(step)
    places = _find_places(rank, launched, syncs, step, nth)
    first = int(_tell_step(rank, np.array([rank.window.start_ns]))[0])
    at = np.searchsorted(syncs, calls)
    rows = np.full(len(calls), -1, np.int64)
    for row, (step_of, number) in enumerate(zip(step[at].tolist(), nth[at].tolist(), strict=True)):
        place = places.get((step_of, number)) or places.get((-1, number))
        if place is None or step_of - place.back >= first:
            continue
        tasks = launched.get((step_of - place.back + rank.window.steps, place.lane), [])
        if place.from_end < len(tasks):
            rows[row] = chosen.device_row[tasks[-1 - place.from_end]]
    return rows


def _tell_step(rank: InferredRank, moments: Ints) -> Ints:
    starts = rank.host.start_ns[rank.markers]
    return np.searchsorted(starts, moments, side="right") - 1


def _count_within(step: Ints) -> Ints:
    """Return the number of each entry within its step, from 0 on."""
    order = np.argsort(step, kind="stable")
    ordered = step[order]
    number = np.empty(len(step), np.int64)
    number[order] = np.arange(len(step)) - np.searchsorted(ordered, ordered)
    return number


def _sort_by_step(rank: InferredRank) -> dict[tuple[int, int], list[int]]:
    """Return the launched device tasks by step and lane, in stream order."""
    devices = rank.devices
    linked = np.flatnonzero(devices.launch >= 0)
    step = _tell_step(rank, rank.host.start_ns[devices.launch[linked]])
    tasks: dict[tuple[int, int], list[int]] = {}
    for key, task in zip(
        zip(step.tolist(), devices.lane[linked].tolist(), strict=True), linked.tolist(), strict=True
    ):
        tasks.setdefault(key, []).append(task)
    return tasks


def _find_places(
    rank: InferredRank,
    launched: dict[tuple[int, int], list[int]],
    syncs: Ints,
    step: Ints,
    nth: Ints,
) -> dict[tuple[int, int], _Place]:
    """Return the places that are known, by step and number of the call; step −1: of any step."""
    devices, places = rank.devices, dict[tuple[int, int], _Place]()
    for call, step_of, number in zip(syncs, step.tolist(), nth.tolist(), strict=True):
        task = int(rank.waits.event_task[call])
        if task < 0 or devices.launch[task] < 0:
            continue
        moment = rank.host.start_ns[devices.launch[task : task + 1]]
        lane, launched_in = int(devices.lane[task]), int(_tell_step(rank, moment)[0])
        mates = launched[launched_in, lane]
        place = _Place(step_of - launched_in, lane, len(mates) - 1 - mates.index(task))
        places[step_of, number] = place
        places.setdefault((-1, number), place)
    return places
