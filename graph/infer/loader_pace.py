"""The pace of a loader whose workers deliver together, where a recording is too short to show it.

In: the window of one rank, and the mean step. Out: the window with that step as its period.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from foretrace.graph.infer.window import OUTLIER_STEP, RUN_AHEAD, RUNS_AHEAD

if TYPE_CHECKING:
    from foretrace.graph.infer.device_tasks import DeviceTasks
    from foretrace.graph.infer.host_tasks import HostTasks
    from foretrace.graph.infer.window import StepWindow


def pace_window(
    window: StepWindow, host: HostTasks, devices: DeviceTasks, pace_ns: int
) -> StepWindow:
    """Return *window* with the mean step of more steps than were recorded, which is known.

    That is the host's; a device that works longer than that sets the pace.
    """
    linked = np.flatnonzero(devices.launch >= 0)
    launched = host.start_ns[devices.launch[linked]]
    mine = linked[(launched >= window.start_ns) & (launched < window.end_ns)]
    busy = np.bincount(devices.lane[mine], weights=devices.busy_ns[mine], minlength=1)
    device_ns = float(busy.max()) / window.steps
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
