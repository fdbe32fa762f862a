"""The pace of a loader whose workers deliver together, where a recording is too short to show it.

In: the window of one rank, and the mean step. Out: the window with that step as its period.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from foretrace.graph.infer.steps.window import (
    OUTLIER_STEP,
    RUN_AHEAD,
    RUNS_AHEAD,
    find_device_starts,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foretrace.graph.infer.steps.window import StepWindow
    from foretrace.graph.infer.tasks.device_tasks import DeviceTasks
    from foretrace.graph.infer.tasks.host_tasks import HostTasks

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

EVEN = 0.05
"""Periods of a device that differ by less than this share are alike."""
LEAST_PERIODS = 2
"""So many show whether they are alike."""


def pace_window(
    window: StepWindow, starts_ns: Ints, host: HostTasks, devices: DeviceTasks, pace_ns: int
) -> StepWindow:
    """Return *window* with the mean step of more steps than were recorded, which is known.

    That is the host's; a device that works longer than that sets the pace.

    Parameters
    ----------
    starts_ns
        When the host began each recorded step, warm-up included.
    pace_ns
        Mean step of the host.
    """
    device_ns = _find_even_period(find_device_starts(starts_ns, host, devices))
    if np.isnan(device_ns):
        device_ns = _find_busy_time(window, host, devices)
    ahead = device_ns > RUN_AHEAD * pace_ns
    notes = tuple(note for note in window.notes if note != RUNS_AHEAD)
    return replace(
        window,
        measured_ns=device_ns if ahead else float(pace_ns),
        host_ns=float(pace_ns),
        device_ns=device_ns,
        notes=(*notes, RUNS_AHEAD) if ahead else notes,
        doubts=tuple(doubt for doubt in window.doubts if doubt.code != OUTLIER_STEP),
    )


def _find_even_period(device_starts: Floats) -> float:
    """Return the period of a device that begins its steps evenly, NaN of another one.

    The host waits in bursts: a device that does not feel that has enough to do meanwhile.
    """
    periods = np.diff(device_starts[np.isfinite(device_starts)])
    if len(periods) < LEAST_PERIODS or np.ptp(periods) > EVEN * periods.mean():
        return float("nan")
    return float(periods.mean())


def _find_busy_time(window: StepWindow, host: HostTasks, devices: DeviceTasks) -> float:
    """Return how long the busiest stream works for a step, in ns."""
    linked = np.flatnonzero(devices.launch >= 0)
    launched = host.start_ns[devices.launch[linked]]
    mine = linked[(launched >= window.start_ns) & (launched < window.end_ns)]
    busy = np.bincount(devices.lane[mine], weights=devices.busy_ns[mine], minlength=1)
    return float(busy.max()) / window.steps
