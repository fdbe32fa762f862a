"""Work of earlier steps for calls whose own work a recording lacks, because it ended before.

Where a device is far behind the host, nothing that the recorded calls launched may have run when
the recording ended; what ran is the work of calls made earlier. Steps repeat, and every call of
the runtime takes the next correlation id: that work is of the same call some steps ago, whose id
is less by what as many steps take.

In: events, host and device tasks and steps of one rank. Out: device tasks in which that work is the
recorded calls', as many periods of the device later.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from foretrace.graph.infer.events import find_last
from foretrace.graph.infer.tasks.device_tasks import MEMCPY, arrange_tasks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foretrace.graph.infer.events import Events
    from foretrace.graph.infer.steps.steps import StepBounds
    from foretrace.graph.infer.tasks.device_tasks import DeviceTasks
    from foretrace.graph.infer.tasks.host_tasks import HostTasks

    Ints = NDArray[np.int64]

MISSING = 0.5
"""Of the launches: with fewer unanswered, some steps are complete."""
NEARLY_ALL = 0.98
"""Of the unanswered launches whose work must be found so: else steps do not repeat."""
FEW = 0.1
_COPY = re.compile("Memcpy|memcpy")


def repeat_earlier_work(
    events: Events, host: HostTasks, devices: DeviceTasks, steps: StepBounds | None
) -> DeviceTasks:
    """Return *devices* with the work of earlier steps for launches that have none.

    They are returned as they are where most launches have work, where steps take different numbers
    of ids, where less than a whole step of the device was recorded, or where the work found is not
    what the calls would launch.
    """
    launches = np.concatenate([devices.unanswered, np.unique(devices.launching)])
    unlinked = np.flatnonzero((devices.launch < 0) & (events.correlation[devices.event] >= 0))
    if len(devices.unanswered) <= MISSING * len(launches) or not len(unlinked):
        return devices
    ids = _count_ids(events, host, steps, launches)
    correlation = events.correlation[devices.event[unlinked]]
    periods = _measure_periods(devices.start_ns[unlinked], correlation, ids)
    if not len(periods):
        return devices
    period = float(np.median(periods))
    call, task, ago = _find_earlier(events, host, devices, unlinked, ids)
    start = devices.start_ns[task] + (ago * period).astype(np.int64)
    found = np.isin(devices.unanswered, call).mean()
    is_copy = events.named(_COPY, host.event[call]) == (devices.kind[task] == MEMCPY)
    if min(found, is_copy.mean(), (start >= host.start_ns[call]).mean()) < NEARLY_ALL:
        return devices
    linked = np.flatnonzero(devices.launch >= 0)
    rows = np.concatenate([linked, task])
    arranged = arrange_tasks(
        events,
        host,
        devices.event[rows],
        np.concatenate([devices.start_ns[linked], start]),
        launch=np.concatenate([devices.launch[linked], call]),
        is_repeated=np.arange(len(rows)) >= len(linked),
    )
    least, most = np.quantile(periods, [FEW, 1 - FEW])
    return replace(arranged, period_spread=float((most - least) / 2 / period))


def _count_ids(events: Events, host: HostTasks, steps: StepBounds | None, launches: Ints) -> int:
    """Return how many correlation ids a step takes; 0 where steps differ or are unknown."""
    if steps is None or steps.single or steps.count < 2:  # noqa: PLR2004  # nothing to compare
        return 0
    launches = launches[np.argsort(host.start_ns[launches], kind="stable")]
    first = np.searchsorted(host.start_ns[launches], steps.starts_ns[:-1])
    if first[-1] >= len(launches):
        return 0
    taken = np.unique(np.diff(events.correlation[host.event[launches[first]]]))
    return int(taken[0]) if len(taken) == 1 and taken[0] > 0 else 0


def _measure_periods(start: Ints, correlation: Ints, ids: int) -> Ints:
    """Return the times from a task to the same one a step later, of all that were seen twice."""
    if not ids:
        return start[:0]
    earlier = find_last(correlation, correlation - ids)
    seen = earlier >= 0
    return start[seen] - start[earlier[seen]]


def _find_earlier(
    events: Events, host: HostTasks, devices: DeviceTasks, unlinked: Ints, ids: int
) -> tuple[Ints, Ints, Ints]:
    """Return calls without work, each task of their like's last recorded run, and steps between."""
    of_call = events.correlation[host.event]
    free = np.flatnonzero(host.is_call & (of_call >= 0))
    free = free[~np.isin(free, devices.launching)]
    correlation = events.correlation[devices.event[unlinked]]
    latest = np.unique(correlation)
    source = find_last(latest % ids, of_call[free] % ids)
    free, source = free[source >= 0], latest[source[source >= 0]]
    order = np.argsort(correlation, kind="stable")
    begin, end = (np.searchsorted(correlation[order], source, side) for side in ("left", "right"))
    count = end - begin
    which = np.repeat(begin - np.append(0, np.cumsum(count)[:-1]), count) + np.arange(count.sum())
    call = np.repeat(free, count)
    ago = np.repeat((of_call[free] - source) // ids, count)
    return call, unlinked[order[which]], ago
