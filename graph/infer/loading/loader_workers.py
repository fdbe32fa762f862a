"""A loader with worker processes, seen only by the calls of ``next()``: what it delivers, and when.

In: annotations and host tasks of one rank, and its steps. Out: load tasks, the steps after which
its waits repeat, and what remains doubtful.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foretrace.graph.infer.loading.loaders import load_evenly, load_from_calls
from foretrace.graph.infer.steps.next_calls import (
    LONGEST_NS,
    are_alike,
    find_burst,
    find_cycle,
    leave_out_warm_up,
    read_next_calls,
    usual_pace,
)
from foretrace.graph.state import Doubt, SeenLoader

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foretrace.graph.infer.events import Events
    from foretrace.graph.infer.loading.loaders import Loads
    from foretrace.graph.infer.steps.next_calls import Burst, NextCalls
    from foretrace.graph.infer.steps.steps import StepBounds
    from foretrace.graph.infer.tasks.host_tasks import HostTasks

    Floats = NDArray[np.float64]

BURSTS, BURSTS_HIDDEN = "loader-bursts", "loader-bursts-hidden"
USUAL_WORKERS = 8
"""So many workers, or fewer, have most loaders whose number nobody counted."""
FALLS_BEHIND = 0.05
"""Share of a step by which a device that is catching up falls behind in each."""
ONE_WAIT = 0.15
"""Share by which what one wait tells of a batch may be off."""
SURE = 1.6
"""So many standard deviations hold 9 of 10 values."""
MATTERS = 0.1
"""Share of a step that what is not known of the loader must be worth before it is doubted."""


class LoaderWorkers(NamedTuple):
    """What is known of the loader of one rank.

    Waits repeat after ``cycle`` steps, 1 where they are even or that is not seen. Where the
    recording is shorter than that, a step takes ``pace_ns`` on average, else that is 0.
    """

    loads: Loads | None
    cycle: int
    pace_ns: int
    seen: SeenLoader
    doubts: tuple[Doubt, ...] = ()
    notes: tuple[str, ...] = ()


def infer_loader_workers(
    events: Events, host: HostTasks, steps: StepBounds | None, workers: int | None
) -> LoaderWorkers | None:
    """Infer how a loader with worker processes sets the pace; ``None`` where there is none.

    *workers* is their number where the recorder counted them.
    """
    if steps is None or steps.single:
        return None
    calls = read_next_calls(events, host, steps.thread)
    if calls is None:
        return None
    shortest = int(calls.took_ns.min())
    seen = SeenLoader(calls.own_ns, calls.is_seen, shortest, bool(calls.waited.any()))
    seen = seen._replace(alike=shortest <= LONGEST_NS and are_alike(calls.took_ns))
    cycle = find_cycle(calls, steps, workers)
    burst = find_burst(calls, steps) if cycle == 0 or cycle > steps.count else None
    if burst is not None:
        return _spread_burst(calls, burst, seen, workers)
    off = 0.0 if cycle == 1 else _measure_unevenness(calls, max(cycle, 1))
    seen = seen._replace(slack=(1 - off, 1 + off))
    doubts = _doubt_uneven(calls, off)
    return LoaderWorkers(load_from_calls(calls), max(cycle, 1), 0, seen, doubts)


def _spread_burst(
    calls: NextCalls, burst: Burst, seen: SeenLoader, workers: int | None
) -> LoaderWorkers:
    """Spread the only wait over the steps until the next; as many as usual if nobody counted."""
    every, *more = (workers,) if workers else burst.guess_workers()
    pace = round(burst.pace_ns(every))
    least = burst.pace_ns(more[-1]) / pace if more else 1.0
    slack = (least * (1 - ONE_WAIT), 1 + ONE_WAIT)
    seen = seen._replace(burst_ns=burst.wait_ns, others_ns=burst.others_ns, slack=slack)
    loads = load_evenly(calls, pace)
    if 1 - least <= MATTERS:
        return LoaderWorkers(loads, 1, pace, seen)
    text = (
        f"one call of next() waited {burst.wait_ns / 1e6:.3f} ms for the loader, the others for"
        f" nothing: its workers deliver together, and their number is not recorded; with {every} a"
        f" step takes {pace / 1e6:.3f} ms, with {more[-1]} {1 - least:.0%} less; record"
        f" {2 * every} steps or more"
    )
    doubt = Doubt(BURSTS, text, f"next() of recorded step {burst.number}")
    return LoaderWorkers(loads, 1, pace, seen, (doubt,))


def _measure_unevenness(calls: NextCalls, cycle: int) -> float:
    """Return the share by which waits as uneven as these may make the mean step wrong.

    Calls a *cycle* apart differ by the chance of two; a mean of whole cycles has that of its calls.
    """
    took = leave_out_warm_up(calls.took_ns)
    whole = len(took) // cycle * cycle
    if cycle == 1:
        spread = float(took.std(ddof=1)) if len(took) > 1 else 0.0
    else:
        apart = took[cycle:] - took[:-cycle]
        spread = float(np.sqrt((apart @ apart) / max(len(apart), 1) / 2))
    return SURE * spread / max(whole, 1) ** 0.5 / usual_pace(calls.end_ns)


def doubt_short_window(
    workers: LoaderWorkers, steps: StepBounds, device_starts: Floats, counted: int | None
) -> LoaderWorkers:
    """Doubt that nobody waits for the loader, where bursts may lie outside the recorded steps.

    That is a doubt where the workers were counted, where the device falls further behind with
    every step, as it does after a burst, or where so few steps hide the bursts of half as many
    workers, too; else only a note.
    """
    late, usual = _measure_lateness(steps, device_starts), counted or USUAL_WORKERS
    if workers.seen.waited or _shows_burst(steps, usual) or _is_far_behind(late, steps, usual):
        return workers
    text = (
        f"no call of next() waited for the loader in the {steps.count + 1} recorded steps: {usual}"
        f" workers that deliver together make one call in {usual} wait, so that the mean step may"
        f" be longer; record {usual} steps or more"
    )
    is_falling_behind = len(late) > 1 and (late[-1] - late[0]) / (len(late) - 1) > FALLS_BEHIND
    if counted or is_falling_behind or not _shows_burst(steps, usual // 2):
        return workers._replace(doubts=(*workers.doubts, Doubt(BURSTS_HIDDEN, text, "next()")))
    return workers._replace(notes=(text,))


def _shows_burst(steps: StepBounds, workers: int) -> bool:
    """Tell whether a burst of so many workers cannot lie outside the recorded steps."""
    numbers = steps.numbers
    is_there = numbers is not None and bool((numbers % workers == 0).any())
    return is_there or len(steps.starts_ns) >= workers


def _is_far_behind(late: Floats, steps: StepBounds, workers: int) -> bool:
    """Tell whether the device is behind by more steps than since the last burst may have been.

    A host that waits for the loader lets it catch up.
    """
    numbers, count = steps.numbers, len(steps.starts_ns)
    since = workers - count if numbers is None else int(numbers[0]) % workers
    return len(late) > 0 and bool(late[0] > since)


def _measure_lateness(steps: StepBounds, device_starts: Floats) -> Floats:
    """Return how many steps the device is behind the host where each step begins."""
    seen = np.flatnonzero(np.isfinite(device_starts[: len(steps.starts_ns)]))
    if len(seen) <= 1:
        return np.empty(0)
    period = (device_starts[seen[-1]] - device_starts[seen[0]]) / (seen[-1] - seen[0])
    return np.asarray((device_starts[seen] - steps.starts_ns[seen]) / period)


def _doubt_uneven(calls: NextCalls, off: float) -> tuple[Doubt, ...]:
    """Say that the mean step depends on how many of some long waits the recording caught."""
    if off <= MATTERS:
        return ()
    longest = int(np.argmax(calls.took_ns))
    text = (
        f"calls of next() waited for the loader between {calls.took_ns.min() / 1e6:.3f} and"
        f" {calls.took_ns.max() / 1e6:.3f} ms, and do not repeat: the mean step may be off by"
        f" {off:.0%}; record more steps"
    )
    return (Doubt(BURSTS, text, f"next() of recorded step {longest}"),)
