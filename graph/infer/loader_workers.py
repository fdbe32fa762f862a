"""A loader with worker processes, seen only by the calls of ``next()``: what it delivers, and when.

In: annotations and host tasks of one rank, and its steps. Out: load tasks, the steps after which
its waits repeat, and what remains doubtful.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foretrace.graph.infer.loaders import load_evenly, load_from_calls
from foretrace.graph.infer.next_calls import find_burst, find_cycle, read_next_calls, usual_pace
from foretrace.graph.state import Doubt, SeenLoader

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foretrace.graph.infer.events import Events
    from foretrace.graph.infer.host_tasks import HostTasks
    from foretrace.graph.infer.loaders import Loads
    from foretrace.graph.infer.next_calls import Burst, NextCalls
    from foretrace.graph.infer.steps import StepBounds

    Floats = NDArray[np.float64]

BURSTS, BURSTS_HIDDEN = "loader-bursts", "loader-bursts-hidden"
USUAL_WORKERS = 8
"""So many workers, or fewer, have most loaders whose number nobody counted."""
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
    cycle = find_cycle(calls, steps, workers)
    burst = find_burst(calls, steps) if cycle == 0 or cycle > steps.count else None
    if burst is not None:
        return _spread_burst(calls, burst, seen, workers)
    off = 0.0 if cycle else _measure_unevenness(calls)
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
    seen = seen._replace(burst_ns=burst.wait_ns, others_ns=burst.others_ns, slack=(least, 1.0))
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


def _measure_unevenness(calls: NextCalls) -> float:
    """Return the share by which waits as uneven as these may make the mean step wrong."""
    off = float(calls.took_ns.std()) / len(calls.took_ns) ** 0.5
    return off / usual_pace(calls.end_ns)


def doubt_short_window(
    workers: LoaderWorkers, steps: StepBounds, device_starts: Floats, counted: int | None
) -> LoaderWorkers:
    """Doubt that nobody waits for the loader, where bursts may lie outside the recorded steps."""
    numbers, count, usual = steps.numbers, len(steps.starts_ns), counted or USUAL_WORKERS
    is_shown = count >= usual or (numbers is not None and bool((numbers % usual == 0).any()))
    since = usual - count if numbers is None else int(numbers[0]) % usual
    if workers.seen.waited or is_shown or _lags(steps, device_starts, since):
        return workers
    text = (
        f"no call of next() waited for the loader in the {count} recorded steps: {usual} workers"
        f" that deliver together make one call in {usual} wait, so that the mean step may be"
        f" longer; record {usual} steps or more"
    )
    return workers._replace(doubts=(*workers.doubts, Doubt(BURSTS_HIDDEN, text, "next()")))


def _lags(steps: StepBounds, device_starts: Floats, since: int) -> bool:
    """Tell whether the device is more than *since* steps behind when the recording begins.

    A host that waits for the loader lets it catch up, so that there was no wait as late as that.
    """
    seen = np.flatnonzero(np.isfinite(device_starts))
    if len(seen) <= 1:
        return False
    period = (device_starts[seen[-1]] - device_starts[seen[0]]) / (seen[-1] - seen[0])
    return bool(device_starts[seen[0]] - steps.starts_ns[seen[0]] > since * period)


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
