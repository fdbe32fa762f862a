"""Which steps of a recording become the graph, and how long they really took.

In: step markers, host and device tasks of one rank. Out: the window and its measured period.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foretrace.graph.infer.device_tasks import DeviceTasks
    from foretrace.graph.infer.host_tasks import HostTasks
    from foretrace.graph.infer.steps import StepBounds

    Ints = NDArray[np.int64]

WARM_UP_SHARE = 3
"""The first third of the recorded steps is warm-up."""
COMPLETE = 0.6
"""A step with fewer of the median step's device tasks has lost events."""
RUN_AHEAD = 1.02
"""Device period over host period; beyond this the host is only filling the launch queue."""
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

    @property
    def steps(self) -> int:
        """Number of steps."""
        return len(self.starts_ns)


def choose_window(steps: StepBounds | None, host: HostTasks, devices: DeviceTasks) -> StepWindow:
    """Leave out warm-up steps and steps with lost device events; measure the rest."""
    if steps is None or steps.single:
        return _take_whole(steps, host, devices)
    starts = steps.starts_ns
    first = steps.count // WARM_UP_SHARE if steps.count >= WARM_UP_SHARE else 0
    last = steps.count
    notes: list[str] = []
    good = _is_complete(starts, host, devices)
    if not good[first:last].all() and good[first:last].any():
        lost = int((~good).sum())
        first, last = _find_longest_run(good, first)
        notes.append(f"{lost} of {steps.count} steps have lost device events and are left out")
    span = starts[first : last + 1]
    host_ns = float(span[-1] - span[0]) / (last - first)
    device_starts = _find_device_starts(starts, host, devices)[first : last + 1]
    device_ns = _mean_period(device_starts)
    measured, samples = host_ns, np.diff(span)
    if device_ns > RUN_AHEAD * host_ns:
        steady = np.diff(device_starts)
        measured, samples = device_ns, steady[np.isfinite(steady)].astype(np.int64)
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
    )


def _take_whole(steps: StepBounds | None, host: HostTasks, devices: DeviceTasks) -> StepWindow:
    """Return the whole recording, or its only step, as one step."""
    if steps is not None:
        start, end = steps.starts_ns.tolist()
        note = "only one step was recorded: its period is its own length"
    else:
        start = min(int(lane.start_ns.min()) for lane in (host, devices) if len(lane))
        end = int(host.end_ns.max()) + 1 if len(host) else int(devices.end_ns.max())
        note = "no steps were found: the whole recording counts as one"
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
        notes=(note,),
    )


def _is_between(time: Ints, start: int, end: int) -> NDArray[np.bool_]:
    return (time >= start) & (time < end)


def _is_complete(starts: Ints, host: HostTasks, devices: DeviceTasks) -> NDArray[np.bool_]:
    """Tell which steps have about as much device work as the median step."""
    linked = devices.launch >= 0
    if not linked.any():
        return np.ones(len(starts) - 1, bool)
    count, _ = np.histogram(host.start_ns[devices.launch[linked]], bins=starts)
    usual = np.median(count[count > 0]) if count.any() else 0
    complete: NDArray[np.bool_] = count >= COMPLETE * usual
    return complete


def _find_longest_run(good: NDArray[np.bool_], first: int) -> tuple[int, int]:
    """First and one past the last step of the longest run of good ones from *first* on."""
    padded = np.concatenate([[False], good[first:], [False]]).astype(int)
    begin = np.flatnonzero(np.diff(padded) == 1)
    end = np.flatnonzero(np.diff(padded) == -1)
    pick = int(np.argmax(end - begin))
    return first + int(begin[pick]), first + int(end[pick])


def _find_device_starts(starts: Ints, host: HostTasks, devices: DeviceTasks) -> NDArray[np.float64]:
    """Start of each step's first task on the busiest stream; NaN where it has none."""
    result = np.full(len(starts), np.nan)
    linked = np.flatnonzero(devices.launch >= 0)
    if not len(linked):
        return result
    busy = np.bincount(devices.lane[linked], weights=devices.busy_ns[linked])
    tasks = linked[devices.lane[linked] == np.argmax(busy)]
    step = np.searchsorted(starts, host.start_ns[devices.launch[tasks]], side="right") - 1
    for number in range(len(starts)):
        here = tasks[step == number]
        if len(here):
            result[number] = devices.start_ns[here].min()
    return result


def _mean_period(moments: NDArray[np.float64]) -> float:
    """Return the mean distance of the known ones among *moments*, NaN of fewer than two."""
    finite = np.flatnonzero(np.isfinite(moments))
    if not len(finite) or finite[0] == finite[-1]:
        return float("nan")
    return float((moments[finite[-1]] - moments[finite[0]]) / (finite[-1] - finite[0]))
