"""Everything inferred about one rank in, which of it is in the window out: rows of a graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foretrace.graph.infer.rank import InferredRank
    from foretrace.graph.infer.steps.window import StepWindow
    from foretrace.graph.infer.tasks.device_tasks import DeviceTasks
    from foretrace.graph.infer.tasks.host_tasks import HostTasks

    Ints = NDArray[np.int64]

BUSY = 0.01
"""Share of the window that a thread works; below it is a watchdog or the like."""


@dataclass(frozen=True)
class Selection:
    """Which host and device tasks and loads are in the window, and their row in the graph."""

    host: Ints
    device: Ints
    load: Ints
    host_row: Ints
    device_row: Ints
    load_row: Ints
    threads: list[int]
    first_stream: int
    loader_lane: int
    dropped_threads: int

    @property
    def rows(self) -> int:
        """Number of tasks in the graph."""
        return len(self.host) + len(self.device) + len(self.load)


def select_window(rank: InferredRank) -> Selection:
    """Choose the window's tasks: first those of the host, then of the device, then the loads.

    Threads that neither train, nor load, nor launch have no say in the step time and are left out.
    """
    host, devices, window, threads = rank.host, rank.devices, rank.window, rank.threads
    within = (host.start_ns >= window.start_ns) & (host.start_ns < window.end_ns)
    launching = np.zeros(len(host), bool)
    launching[devices.launching] = True
    launchers = [thread for thread, span in host.spans.items() if launching[span].any()]
    kept = {threads.main, *threads.subordinates, *threads.loaders, *launchers}
    inside = within & host.on(kept)
    host_rows = np.flatnonzero(inside)
    device_rows = _find_device_tasks(devices, inside, window)
    load_rows = np.empty(0, np.int64)
    if rank.loads is not None:
        load_rows = np.flatnonzero(inside[rank.loads.consumer])
    present = [thread for thread, span in host.spans.items() if inside[span].any()]
    present.sort(key=lambda thread: thread != threads.main)
    first_device, first_load = len(host_rows), len(host_rows) + len(device_rows)
    return Selection(
        host=host_rows,
        device=device_rows,
        load=load_rows,
        host_row=_number(len(host), host_rows, 0),
        device_row=_number(len(devices), device_rows, first_device),
        load_row=_number(
            0 if rank.loads is None else len(rank.loads.consumer), load_rows, first_load
        ),
        threads=present,
        first_stream=len(present),
        loader_lane=len(present) + devices.lanes,
        dropped_threads=_count_busy_threads(
            host, within & ~inside, window.end_ns - window.start_ns
        ),
    )


def _count_busy_threads(host: HostTasks, where: NDArray[np.bool_], window_ns: int) -> int:
    """Count the threads of some tasks; those that hardly do anything are not worth a word."""
    threads, number = np.unique(host.thread[where], return_inverse=True)
    work = np.bincount(number, weights=(host.end_ns - host.start_ns)[where])
    return int((work > BUSY * window_ns).sum()) if len(threads) else 0


def _number(count: int, rows: Ints, first: int) -> Ints:
    """Return for each of *count* its place among *rows*, counted from *first*; −1: not there."""
    number = np.full(count, -1, np.int64)
    number[rows] = first + np.arange(len(rows))
    return number


def _find_device_tasks(devices: DeviceTasks, inside: NDArray[np.bool_], window: StepWindow) -> Ints:
    """Device tasks launched in the window; those without a launch go with their neighbours.

    Of a stream whose launches are all unknown, those that start in the window.
    """
    linked = devices.launch >= 0
    if not linked.any():
        return np.arange(len(devices))
    chosen = linked.copy()
    chosen[linked] = inside[devices.launch[linked]]
    for lane in np.unique(devices.lane[chosen]):
        mine = np.flatnonzero(devices.lane == lane)
        hit = np.flatnonzero(chosen[mine])
        between = mine[hit[0] : hit[-1] + 1]
        chosen[between] |= ~linked[between]
    unknown = np.bincount(devices.lane, weights=linked) == 0
    starts_inside = (devices.start_ns >= window.start_ns) & (devices.start_ns < window.end_ns)
    return np.flatnonzero(chosen | (unknown[devices.lane] & starts_inside))
