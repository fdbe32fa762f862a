"""Repeat the window until every lane keeps its period; the slowest lane sets the pace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numba import njit

from foretrace.graph.model import EDGE_KINDS
from foretrace.replaying.engine.program import ReplayError
from foretrace.replaying.engine.static import run

if TYPE_CHECKING:
    from collections.abc import Callable

    from foretrace.replaying.engine.program import Bytes, Flags, Ints, Longs, Program
    from foretrace.replaying.engine.schedule import Schedule

FIRST_REPETITIONS = 4
PATIENCE = 16
"""Repetitions after which lanes may keep different periods: a host that runs ahead for good."""
MOST_REPETITIONS = 64
MOST_TASKS = 40_000_000
"""Unrolled tasks beyond which no further repetitions are tried (4 GiB)."""
LONGEST_CYCLE = 4
"""Repetitions after which a pattern may repeat and still count as exact."""
STANDS = 5e-4
"""Relative change between two quarters of the run below which a mean period stands."""
_THREAD, _STREAM = (list(EDGE_KINDS).index(kind) for kind in ("thread", "stream"))


@dataclass(frozen=True)
class Steady:
    """The steady state of a repeated window. Times in ns; a period is one repetition long.

    ``cycle`` repetitions make one pattern; where they did not repeat exactly, it is the number
    over which the period was averaged. ``window`` is a repetition inside the steady part.
    ``pace`` is the row of the first task on the slowest lane.
    """

    period_ns: float
    host_period_ns: float | None
    device_period_ns: float | None
    fill_ns: int
    settled: bool
    cycle: int
    window: int
    pace: int
    schedule: Schedule

    @property
    def program(self) -> Program:
        """The program that was run."""
        return self.schedule.prepared.program


def find_steady_state(
    lower: Callable[[int], Program],
    on_device: Flags,
    run: Callable[[Program], Schedule] = run,
) -> Steady:
    """Run ever more repetitions until the periods settle.

    Parameters
    ----------
    lower
        Returns the program of so many repetitions of the window.
    on_device
        Per lane, whether it is a device's.
    run
        Replays such a program.

    Raises
    ------
    ReplayError
        The window is empty, or cannot be replayed.
    """
    repetitions = FIRST_REPETITIONS
    while True:
        program = lower(repetitions)
        if program.tasks == 0:
            raise ReplayError("nothing to replay: the window holds no task")
        schedule = run(program)
        rows = _find_first_rows(schedule.starts[0], program.lane)
        starts = schedule.starts[:, rows]
        cycle = find_cycle(starts)
        together = cycle > 0 and len(np.unique(starts[-1] - starts[-1 - cycle])) == 1
        patient = repetitions >= PATIENCE
        settled = together or (patient and (cycle > 0 or _is_stable(starts)))
        exhausted = 2 * repetitions > MOST_REPETITIONS
        if settled or exhausted or 2 * repetitions * program.tasks > MOST_TASKS:
            break
        repetitions *= 2
    if settled and cycle:
        _check_busy(program, rows, starts, cycle)
    return _summarise(schedule, rows, starts, cycle, on_device, settled=settled)


def find_cycle(starts: Longs) -> int:
    """Return after how many repetitions the periods of all lanes repeat; 0 if they do not.

    >>> import numpy as np
    >>> find_cycle(np.array([[0], [9], [14], [19]]))
    1
    >>> find_cycle(np.array([[0], [3], [8], [11], [16]]))
    2
    """
    periods = np.diff(starts, axis=0)
    for cycle in range(1, LONGEST_CYCLE + 1):
        recent, before = periods[-cycle:], periods[-2 * cycle : -cycle]
        if len(periods) >= 2 * cycle and (recent == before).all():
            return cycle
    return 0


def _is_stable(starts: Longs) -> bool:
    """Return whether the slowest lane's mean period was the same in the last two quarters."""
    quarter = len(starts) // 4
    last = int((starts[-1] - starts[-1 - quarter]).max())
    before = int((starts[-1 - quarter] - starts[-1 - 2 * quarter]).max())
    return abs(last - before) <= STANDS * last


def _summarise(
    schedule: Schedule, rows: Ints, starts: Longs, cycle: int, on_device: Flags, *, settled: bool
) -> Steady:
    repetitions = len(starts)
    cycle = cycle or repetitions // 4
    periods = (starts[-1] - starts[-1 - cycle]) / cycle
    is_device = on_device[schedule.prepared.program.lane[rows]]
    pace = int(periods.argmax())
    return Steady(
        period_ns=float(periods[pace]),
        host_period_ns=float(periods[~is_device].max()) if (~is_device).any() else None,
        device_period_ns=float(periods[is_device].max()) if is_device.any() else None,
        fill_ns=_measure_fill(starts, cycle),
        settled=bool(settled),
        cycle=cycle,
        window=max(0, repetitions - 1 - 2 * cycle),
        pace=int(rows[pace]),
        schedule=schedule,
    )


def _measure_fill(starts: Longs, cycle: int) -> int:
    """Return when the first repetition starts that already keeps the final pattern."""
    periods = np.diff(starts, axis=0)
    first = len(periods) - cycle
    while first > 0 and (periods[first - 1] == periods[first - 1 + cycle]).all():
        first -= 1
    return int(starts[first].min())


def _check_busy(program: Program, rows: Ints, starts: Longs, cycle: int) -> None:
    """Raise unless every serial lane works at most its period: replay cannot create time.

    Numbers near the end of 64 bits may look as if it did.
    """
    busy = _sum_serial_work(
        program.work_ns,
        program.lane,
        program.src,
        program.dst,
        program.lag_ns,
        program.kind,
        program.shift,
    )
    lanes = program.lane[rows]
    periods = starts[-1] - starts[-1 - cycle]
    for lane, span in zip(lanes.tolist(), periods.tolist(), strict=True):
        if not span >= busy[lane] * cycle >= 0:
            raise ReplayError(
                f"lane {lane} works {busy[lane]} ns per repetition, yet repeats after "
                f"{span / cycle} ns: its times cannot be"
            )


@njit(cache=True)
def _find_first_rows(start: Longs, lane: Ints) -> Ints:
    """Return the row that starts first, the lowest of several, on each lane that has tasks."""
    first = np.full(lane.max() + 1, -1, np.int32)
    for i in range(len(start)):
        if first[lane[i]] < 0 or start[i] < start[first[lane[i]]]:
            first[lane[i]] = i
    return first[first >= 0]


@njit(cache=True)
def _sum_serial_work(
    work: Longs, lane: Ints, src: Ints, dst: Ints, lag: Longs, kind: Bytes, shift: Ints
) -> Longs:
    """Sum the work of one repetition per lane; 0 unless its order edges make one chain of it.

    One chain: each task follows one and leads to one, and once only into the next repetition.
    """
    tasks = len(work)
    busy = np.zeros(lane.max() + 1, np.int64)
    open_ends = np.zeros(len(busy), np.int64)
    seams = np.zeros(len(busy), np.int64)
    followed = np.zeros(tasks, np.bool_)
    led = np.zeros(tasks, np.bool_)
    for i in range(tasks):
        busy[lane[i]] += work[i]
        open_ends[lane[i]] += 1
    for e in range(len(src)):
        if kind[e] == _THREAD or kind[e] == _STREAM:
            tail, head, own = src[e], dst[e], lane[src[e]]
            if lane[head] == own:
                is_link = lag[e] >= 0 and not followed[tail] and not led[head]
                open_ends[own] -= 1 if is_link else -tasks
                seams[own] += shift[e]
                followed[tail] = led[head] = True
    for one in range(len(busy)):
        if open_ends[one] != 0 or seams[one] != 1:
            busy[one] = 0
    return busy
