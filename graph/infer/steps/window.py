"""Which steps of a recording become the graph, and how long they really took.

In: step markers, host and device tasks of one rank. Out: the window and its measured period.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foretrace.graph.infer.steps.next_calls import keep_whole_cycles
from foretrace.graph.state import Doubt

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foretrace.graph.infer.steps.steps import StepBounds
    from foretrace.graph.infer.tasks.device_tasks import DeviceTasks
    from foretrace.graph.infer.tasks.host_tasks import HostTasks

    Ints = NDArray[np.int64]

WARM_UP = 1 / 3
"""Share of the recorded steps that is warm-up."""
COMPLETE = 0.6
"""A step with fewer of the median step's device tasks has lost events."""
LOST = 0.02
"""Of its launches that a step may lack the work of, beyond what every step lacks."""
ALIKE = 0.05
"""Share by which steps with all their device events may differ from all steps."""
RUN_AHEAD = 1.02
"""Device period over host period; beyond this the host is only filling the launch queue."""
EVEN = 0.1
"""Periods of a device that differ by less than this share show its pace."""
OUTLIER = 2.0
"""A step this many times as long as the median one is named where it alone moves the mean."""
MOVES = 0.1
"""Share of the mean step that one outlier moves before it is named."""
LEAST_STEPS = 3
"""Steps that must be known before one of them can be an outlier."""
OUTLIER_STEP = "outlier-step"
NO_STEPS = (
    "no steps were found: the whole recording counts as one; name the range that begins a step with"
    " --step, or record with prof.step()"
)
RUNS_AHEAD = "the host runs ahead of the device in this recording: the device sets the pace"


@dataclass(frozen=True)
class StepWindow:
    """Whole steps from ``start_ns`` to ``end_ns`` on the host.

    ``measured_ns`` is the period: the host's, or the device's while the host runs ahead of it.
    ``starts_ns`` are the host's step starts within the window; ``device_ns`` is NaN where no
    device works.
    """

    start_ns: int
    end_ns: int
    starts_ns: Ints
    measured_ns: float
    host_ns: float
    device_ns: float
    samples_ns: tuple[int, ...]
    notes: tuple[str, ...]
    doubts: tuple[Doubt, ...] = ()
    first: int = 0
    """The first of the recorded steps that is kept."""

    @property
    def steps(self) -> int:
        """Number of steps."""
        return len(self.starts_ns)

    @property
    def kept(self) -> tuple[int, int]:
        """The first and one past the last of the recorded steps that are kept."""
        return self.first, self.first + self.steps


def choose_window(
    steps: StepBounds | None,
    host: HostTasks,
    devices: DeviceTasks,
    common: tuple[int, int] | None = None,
    warm_up: float = WARM_UP,
    cycle: int = 1,
    *,
    complete_only: bool = True,
) -> StepWindow:
    """Leave out warm-up steps and steps with lost device events; measure the rest.

    Parameters
    ----------
    common
        The first and one past the last of the steps that every rank recorded; all by default.
    warm_up
        Share of the steps that is left out at the beginning.
    cycle
        Steps after which waits for a loader repeat: only whole cycles show its pace, so that
        warm-up steps are kept where there are too few others.
    complete_only
        Leave out the steps that lost device events.
    """
    if steps is None or steps.single:
        return _take_whole(steps, host, devices)
    starts = steps.starts_ns
    begin, last = common or (0, steps.count)
    first = begin + int((last - begin) * warm_up)
    notes: list[str] = []
    doubts = _doubt_guess(steps)
    good = _is_complete(starts, host, devices) if complete_only else np.ones(steps.count, bool)
    good[last:] = False
    if not good[first:last].all() and good[first:last].any():
        lost = int((~good[:last]).sum())
        every = starts[first : last + 1]
        first, last = _find_longest_run(good, first)
        notes.append(f"{lost} of {steps.count} steps have lost device events and are left out")
        doubts += _doubt_rest(every, starts[first : last + 1])
    if cycle > 1:
        first = keep_whole_cycles(good[begin:last], first - begin, cycle) + begin
    span = starts[first : last + 1]
    host_ns = float(span[-1] - span[0]) / (last - first)
    device_starts = find_device_starts(starts, host, devices)[first : last + 1]
    device_ns = _mean_period(device_starts)
    measured, samples = host_ns, np.diff(span)
    steady = np.diff(device_starts[np.isfinite(device_starts)])
    same_steps = np.where(np.isfinite(device_starts), span, np.nan)
    is_ahead = device_ns > RUN_AHEAD * _mean_period(same_steps)
    if is_ahead or _waits_now_and_then(samples, steady):
        measured, samples = device_ns, steady.astype(np.int64)
        notes.append(RUNS_AHEAD)
    return StepWindow(
        start_ns=int(span[0]),
        end_ns=int(span[-1]),
        starts_ns=span[:-1],
        measured_ns=measured,
        host_ns=host_ns,
        device_ns=device_ns,
        samples_ns=tuple(samples.tolist()),
        notes=tuple(notes),
        doubts=(*doubts, *(_doubt_outlier(steps, samples, first, begin) if cycle == 1 else ())),
        first=first,
    )


def _waits_now_and_then(host_ns: Ints, device_ns: NDArray[np.float64]) -> bool:
    """Tell whether the device does not feel a far longer step, as one in ten that reads a loss."""
    is_long = len(device_ns) >= LEAST_STEPS and host_ns.max() > OUTLIER * np.median(host_ns)
    return bool(is_long and np.ptp(device_ns) <= EVEN * device_ns.mean())


def _doubt_rest(every: Ints, kept: Ints) -> list[Doubt]:
    """Say that the steps kept, of which no device event was lost, are not like all of them."""
    usual, ours = (np.diff(starts).mean() / 1e6 for starts in (every, kept))
    if abs(ours / usual - 1) <= ALIKE:
        return []
    text = (
        f"the {len(kept) - 1} steps that have all their device events take {ours:,.2f} ms on the"
        f" host, all {len(every) - 1} take {usual:,.2f} ms: record more steps, and synchronise"
        " with the device before the profiler stops"
    )
    return [Doubt("steps-left-out", text)]


def _doubt_guess(steps: StepBounds) -> list[Doubt]:
    """Say that nobody called these steps."""
    if not steps.is_guess:
        return []
    text = (
        f"that a step begins with {steps.name!r} is a guess: name the range that begins one with"
        " --step"
    )
    return [Doubt("steps-guessed", text)]


def _doubt_outlier(steps: StepBounds, samples: Ints, first: int, begin: int) -> list[Doubt]:
    """Name the one step that alone makes the mean step longer, if there is one.

    Of few *samples*, the steps from *begin* that were left out as warm-up tell what is usual, too.
    """
    longest = int(np.argmax(samples))
    rest = np.delete(samples, longest)
    warm_up = np.diff(steps.starts_ns[begin : first + 1])
    others = rest if len(samples) >= LEAST_STEPS else np.append(rest, warm_up)
    if not len(rest) or len(others) < LEAST_STEPS - 1:
        return []
    usual, mean = float(np.median(others)), float(samples.mean())
    if samples[longest] <= OUTLIER * usual or rest.max() > OUTLIER * usual:
        return []
    if mean - rest.mean() <= MOVES * mean:
        return []
    number = first + longest if steps.numbers is None else int(steps.numbers[first + longest])
    text = (
        f"one step took {samples[longest] / 1e6:.3f} ms, the others {rest.mean() / 1e6:.3f}: the"
        f" mean, {mean / 1e6:.3f}, is its doing; record more steps, or without what happened in it"
    )
    return [Doubt(OUTLIER_STEP, text, f"step {number}")]


def _take_whole(steps: StepBounds | None, host: HostTasks, devices: DeviceTasks) -> StepWindow:
    """Return the whole recording, or its only step, as one step."""
    if steps is not None:
        start, end = steps.starts_ns.tolist()
        notes: tuple[str, ...] = ("only one step was recorded: its period is its own length",)
        doubts = _doubt_guess(steps)
    else:
        start = min(int(lane.start_ns.min()) for lane in (host, devices) if len(lane))
        end = int(host.end_ns.max()) + 1 if len(host) else int(devices.end_ns.max())
        notes = ()
        doubts = [Doubt("no-steps", NO_STEPS)]
    inside = devices.launch >= 0
    inside[inside] = _is_between(host.start_ns[devices.launch[inside]], start, end)
    span = 0
    if inside.any():
        span = int(devices.end_ns[inside].max() - devices.start_ns[inside].min())
    measured = max(end - start, span, 1)
    return StepWindow(
        start_ns=start,
        end_ns=end,
        starts_ns=np.array([start]),
        measured_ns=float(measured),
        host_ns=float(end - start),
        device_ns=float(span),
        samples_ns=(measured,),
        notes=notes,
        doubts=tuple(doubts),
    )


def _is_between(time: Ints, start: int, end: int) -> NDArray[np.bool_]:
    return (time >= start) & (time < end)


def _is_complete(starts: Ints, host: HostTasks, devices: DeviceTasks) -> NDArray[np.bool_]:
    """Tell which steps have about as much device work as the median step, and as they launched."""
    linked = devices.launch >= 0
    if not linked.any():
        return np.ones(len(starts) - 1, bool)
    count, lost = (
        _count_in_steps(starts, host.start_ns[calls])
        for calls in (devices.launch[linked], devices.unanswered)
    )
    usual = np.median(count[count > 0]) if count.any() else 0
    share = lost / np.maximum(lost + count, 1)
    complete: NDArray[np.bool_] = (count >= COMPLETE * usual) & (share <= share.min() + LOST)
    return complete


def _count_in_steps(starts: Ints, moments: Ints) -> Ints:
    step = np.searchsorted(starts, moments, side="right") - 1
    steps = len(starts) - 1
    return np.bincount(step[(step >= 0) & (step < steps)], minlength=steps)


def _find_longest_run(good: NDArray[np.bool_], first: int) -> tuple[int, int]:
    """First and one past the last step of the longest run of good ones from *first* on."""
    padded = np.concatenate([[False], good[first:], [False]]).astype(int)
    begin = np.flatnonzero(np.diff(padded) == 1)
    end = np.flatnonzero(np.diff(padded) == -1)
    pick = int(np.argmax(end - begin))
    return first + int(begin[pick]), first + int(end[pick])


def find_device_starts(starts: Ints, host: HostTasks, devices: DeviceTasks) -> NDArray[np.float64]:
    """When each step's first task on the busiest stream could have begun; NaN where it has none.

    A host that pauses before it launches makes an idle device late: that is no pace of the device.
    """
    result = np.full(len(starts), np.nan)
    linked = np.flatnonzero(devices.launch >= 0)
    if not len(linked):
        return result
    busy = np.bincount(devices.lane[linked], weights=devices.busy_ns[linked])
    tasks = linked[devices.lane[linked] == np.argmax(busy)]
    launched = host.start_ns[devices.launch[tasks]]
    step = np.searchsorted(starts, launched, side="right") - 1
    seen, at = np.unique(step, return_index=True)
    seen, at = seen[seen >= 0], at[seen >= 0]
    first = tasks[at]
    pause = launched[at] - starts[seen]
    late = np.clip(pause - np.median(pause) if len(pause) else pause, 0, None)
    before = devices.before()[first]
    free = np.where(before >= 0, devices.end_ns[before], np.iinfo(np.int64).min)
    begun = devices.start_ns[first]
    idle = free <= launched[at]
    result[seen] = np.where(idle, np.maximum(free, begun - late), begun)
    return result


def _mean_period(moments: NDArray[np.float64]) -> float:
    """Return the mean distance of the known ones among *moments*, NaN of fewer than two."""
    finite = np.flatnonzero(np.isfinite(moments))
    if not len(finite) or finite[0] == finite[-1]:
        return float("nan")
    return float((moments[finite[-1]] - moments[finite[0]]) / (finite[-1] - finite[0]))
