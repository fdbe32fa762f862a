"""Which steps of a recording become the graph, and how long they really took.

In: step markers, host and device tasks of one rank. Out: the window and its measured period.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foretrace.graph.device import Devices
    from foretrace.graph.host import Host
    from foretrace.graph.steps import Steps

    Ints = NDArray[np.int64]

WARM_UP_SHARE = 3             # the first third of the recorded steps is warm-up
COMPLETE = 0.6                # a step with fewer of its launches on the device has lost events
RUN_AHEAD = 1.02              # beyond this the host is only filling the launch queue


@dataclass(frozen=True)
class Window:
    """Whole steps from ``start_ns`` to ``end_ns`` on the host.

    ``measured_ns`` is the period: the host's, or the device's while the host runs ahead of it.
    ``starts_ns`` are the host's step starts within the window; ``device_ns`` is NaN without a device.
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


def choose_window(steps: Steps | None, host: Host, devices: Devices) -> Window:
    """Leave out warm-up steps and steps with lost device events; measure the rest."""
    if steps is None or steps.single:
        return _whole(steps, host, devices)
    starts = steps.starts_ns
    first = steps.count // WARM_UP_SHARE if steps.count >= WARM_UP_SHARE else 0
    last = steps.count
    notes: list[str] = []
    good = _complete_steps(starts, host, devices)
    if not good[first:last].all() and good[first:last].any():
        lost = int((~good).sum())
        first, last = _longest_run(good, first)
        notes.append(f"{lost} of {steps.count} steps have lost device events and are left out")
    span = starts[first : last + 1]
    host_ns = float(span[-1] - span[0]) / (last - first)
    device_starts = _device_starts(starts, host, devices)[first : last + 1]
    device_ns = _period(device_starts)
    samples = np.diff(span)
    measured = host_ns
    if device_ns > RUN_AHEAD * host_ns:
        measured = device_ns
        steady = np.diff(device_starts)
        samples = steady[np.isfinite(steady)].astype(np.int64)
        notes.append("the host runs ahead of the device in this recording: the device sets the pace")
    return Window(
        int(span[0]),
        int(span[-1]),
        span[:-1],
        measured,
        host_ns,
        device_ns,
        tuple(int(s) for s in samples),
        tuple(notes),
    )


def _whole(steps: Steps | None, host: Host, devices: Devices) -> Window:
    begins = [a.min() for a in (host.start_ns, devices.start_ns) if len(a)]
    ends = [a.max() for a in (host.end_ns, devices.end_ns) if len(a)]
    start, end = int(min(begins)), int(host.end_ns.max() + 1 if len(host) else max(ends))
    notes = ["no steps were found: the whole recording counts as one"]
    if steps is not None:
        start, end = int(steps.starts_ns[0]), int(steps.starts_ns[1])
        notes = ["only one step was recorded: its period is its own length"]
    span = 0
    inside = devices.launch >= 0
    inside[inside] = _between(host.start_ns[devices.launch[inside]], start, end)
    if inside.any():
        span = int(devices.end_ns[inside].max() - devices.start_ns[inside].min())
    measured = float(max(end - start, span, 1))
    return Window(
        start, end, np.array([start]), measured, float(end - start), float(span), (int(measured),), tuple(notes)
    )


def _between(time: Ints, start: int, end: int) -> NDArray[np.bool_]:
    return (time >= start) & (time < end)


def _complete_steps(starts: Ints, host: Host, devices: Devices) -> NDArray[np.bool_]:
    """Tell which steps have about as much device work as the median step."""
    linked = devices.launch >= 0
    if not linked.any():
        return np.ones(len(starts) - 1, bool)
    called = host.start_ns[devices.launch[linked]]
    count, _ = np.histogram(called, bins=starts)
    return count >= COMPLETE * np.median(count[count > 0]) if (count > 0).any() else count >= 0


def _longest_run(good: NDArray[np.bool_], first: int) -> tuple[int, int]:
    """First and one past the last step of the longest run of good ones from *first* on."""
    padded = np.concatenate([[False], good[first:], [False]]).astype(int)
    begin = np.flatnonzero(np.diff(padded) == 1)
    end = np.flatnonzero(np.diff(padded) == -1)
    pick = int(np.argmax(end - begin))
    return first + int(begin[pick]), first + int(end[pick])


def _device_starts(starts: Ints, host: Host, devices: Devices) -> NDArray[np.float64]:
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


def _period(moments: NDArray[np.float64]) -> float:
    known = np.flatnonzero(np.isfinite(moments))
    if len(known) < 2:  # noqa: PLR2004
        return float("nan")
    return float((moments[known[-1]] - moments[known[0]]) / (known[-1] - known[0]))
