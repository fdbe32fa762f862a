"""What calls of ``next()`` on a loader with worker processes tell about it.

In: annotations and host tasks of one rank, and its steps. Out: what taking over a batch costs,
which calls waited for theirs, and after how many steps the waits repeat.

Workers that cannot keep up deliver together: all of them began at the same time. Then one call in
as many as there are workers waits for all, and the others find their batch ready.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foretrace.graph.infer.events import match_names

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foretrace.graph.infer.events import Events
    from foretrace.graph.infer.steps.steps import StepBounds
    from foretrace.graph.infer.tasks.host_tasks import HostTasks

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]

MULTI_PROCESS = re.compile(r"^enumerate\(DataLoader\).*_Multi")
ALIKE_CALLS = 1.6
"""Calls that did not wait differ by this factor at most."""
SHORT_NS = 600_000
"""Taking over a batch is this cheap in most jobs, whatever their steps take …"""
SHORT_SHARE = 0.05
"""… or costs no more than this share of a step, and …"""
LONGEST_NS = 2_000_000
"""… never more than this: unpickling and queue handling of one batch."""
ENOUGH_CALLS, ABSORBS = 4, -0.5
"""So many calls show whether they wait: then one is as much shorter as the step before is longer,
and the slope of the one over the other is -1, not 0."""
USUAL_HANDOVER_NS = 200_000
"""Taking over a batch that lies ready, where every call waited: 70 to 180 µs in public traces."""
WAIT_SHARE = 0.02
"""Share of a step below which a wait is none."""
EVEN = 0.05
"""Calls that differ by less than this share of a step are alike."""
MANY_CALLS = 12
"""So many show how batches come without those of the warm-up."""
WARM_UP_SHARE = 3
REPEATS, REPEATS_EACH = 0.25, 0.5
"""Mean and largest difference of calls one cycle apart, over the largest difference of any two."""


class NextCalls(NamedTuple):
    """The calls in order: the host task that waits if one does, when each ended, how long it took.

    ``own_ns`` is what a call takes that finds its batch ready, and ``is_seen`` whether one did;
    else that is a usual cost.
    """

    consumer: Ints
    end_ns: Ints
    took_ns: Ints
    own_ns: int
    is_seen: bool

    @property
    def waited(self) -> Flags:
        """Which calls waited for their batch."""
        if not self.is_seen:
            return np.ones(len(self.took_ns), bool)
        wait = self.took_ns - self.own_ns
        usual = (ALIKE_CALLS - 1) * self.own_ns
        return (wait > usual) & (wait > WAIT_SHARE * usual_pace(self.end_ns))


class Burst(NamedTuple):
    """The only wait of a recording that is shorter than the time from one burst to the next.

    Call ``number`` waited ``wait_ns``; ``others_ns`` is a step without that. No other call waited,
    so bursts lie ``least`` steps apart or more. ``step`` is what the recorder counts that step as,
    0 where it does not.
    """

    number: int
    wait_ns: int
    others_ns: int
    least: int
    step: int = 0

    def pace_ns(self, workers: int) -> float:
        """Return the mean step when *workers* deliver together."""
        return self.others_ns + self.wait_ns / workers

    def guess_workers(self) -> tuple[int, ...]:
        """Return how many workers there may be, a power of two as usual, the fewest first.

        All begin at once with batch 0, and each makes every so-manieth from then on: as long as
        they deliver together, it is a batch whose number is a multiple of theirs that is waited
        for. Steps that are counted from another batch on mostly fit no number of workers.
        """
        fewest = 1 << (self.least - 1).bit_length()
        usual = (fewest, 2 * fewest, 4 * fewest)
        fitting = tuple(each for each in usual if self.step and self.step % each == 0)
        return fitting or usual[:2]


def read_next_calls(events: Events, host: HostTasks, main: int) -> NextCalls | None:
    """Read the calls on thread *main*; ``None`` where a loader with workers has none or one."""
    on_main = host.tasks_of(main)
    multi = match_names(events.names, MULTI_PROCESS)[events.name]
    pieces = on_main[multi[host.event[on_main]] & ~host.is_call[on_main]]
    if not len(pieces):
        return None
    order = np.lexsort((host.start_ns[pieces] - host.end_ns[pieces], host.event[pieces]))
    event, longest = np.unique(host.event[pieces[order]], return_index=True)
    consumer = pieces[order][longest]
    order = np.argsort(host.start_ns[consumer], kind="stable")
    consumer, event = consumer[order], event[order]
    took = events.duration_ns[event]
    own, is_seen = _estimate_handover(took, host.end_ns[consumer])
    return NextCalls(consumer, host.end_ns[consumer], took, own, is_seen)


def usual_pace(moments: Ints) -> float:
    """Return the mean distance of *moments*, 0 of a single one."""
    return float(moments[-1] - moments[0]) / max(len(moments) - 1, 1)


def _estimate_handover(took: Ints, end_ns: Ints) -> tuple[int, bool]:
    """Return what taking over a batch costs, and whether a call shows it.

    The shortest calls do, unless they are too long for that: then every call waited. In between,
    calls that are alike did not wait if they are as long after a long step as after a short one.
    """
    own = int(np.median(took[took <= ALIKE_CALLS * took.min()]))
    if own <= max(SHORT_NS, min(SHORT_SHARE * usual_pace(end_ns), LONGEST_NS)):
        return own, True
    if own <= LONGEST_NS and are_alike(took) and not _absorb_steps(took, end_ns):
        return own, True
    return min(USUAL_HANDOVER_NS, int(took.min())), False


def are_alike(took: Ints) -> bool:
    """Tell whether calls that took so long may all have found their batch ready."""
    return bool(took.max() <= ALIKE_CALLS * took.min())


def _absorb_steps(took: Ints, end_ns: Ints) -> bool:
    """Tell whether calls were shorter after longer steps; too few calls, or even steps, may be."""
    before = np.diff(end_ns) - took[1:]
    if len(took) < ENOUGH_CALLS or not np.ptp(before):
        return True
    of_step, of_call = before - before.mean(), took[1:] - took[1:].mean()
    return bool((of_step @ of_call) <= ABSORBS * (of_step @ of_step))


def find_cycle(calls: NextCalls, steps: StepBounds, workers: int | None) -> int:
    """Return after how many steps waits repeat: 1 where they are even, 0 where that is not seen.

    *workers* says it where it is known.
    """
    took = _take_one_per_step(calls, steps)
    if took is None or len(took) <= 1:
        return 1
    took = leave_out_warm_up(took)
    spread = int(np.ptp(took))
    if spread <= EVEN * usual_pace(steps.starts_ns):
        return 1
    late = np.flatnonzero(took - took.min() > spread / 2)
    for cycle in [workers] if workers else range(1, len(took)):
        repeats = (late >= cycle) | (late + cycle < len(took))
        if repeats.all() and (workers or _is_alike(took, cycle)):
            return cycle
    return 0


def leave_out_warm_up(took: Ints) -> Ints:
    """Return the calls without the first third, where so many are known."""
    return took[len(took) // WARM_UP_SHARE :] if len(took) >= MANY_CALLS else took


def _is_alike(took: Ints, cycle: int) -> bool:
    """Tell whether calls one cycle apart took about as long; of few calls, each of them."""
    apart = np.abs(took[cycle:] - took[:-cycle]) / np.ptp(took)
    return bool(
        apart.mean() <= REPEATS and (len(took) >= MANY_CALLS or apart.max() <= REPEATS_EACH)
    )


def find_burst(calls: NextCalls, steps: StepBounds) -> Burst | None:
    """Find the one wait of a recording in which waits do not repeat.

    One in the first step of a job is the start of the loader.
    """
    took = _take_one_per_step(calls, steps)
    if took is None or calls.waited.sum() != 1:
        return None
    number = int(np.flatnonzero(calls.waited)[0])
    starts_job = steps.numbers is None or steps.numbers[0] == 0
    if number == 0 and starts_job:
        return None
    wait = np.clip(took - calls.own_ns, 0, None)
    whole = steps.count
    others = int(np.median(np.diff(steps.starts_ns) - wait[:whole]))
    least = max(number, len(took) - 1 - number) + 1
    step = 0 if steps.numbers is None else int(steps.numbers[number])
    return Burst(number, int(wait[number]), others, least, step)


def keep_whole_cycles(good: Flags, first: int, cycle: int) -> int:
    """Return the first step of as many whole cycles as lie after *first*; of one, if before it.

    *good* tells which steps lost nothing.
    """
    whole = (len(good) - first) // cycle * cycle
    if whole:
        return len(good) - whole
    enough = len(good) >= cycle and good[-cycle:].all()
    return len(good) - cycle if enough else first


def _take_one_per_step(calls: NextCalls, steps: StepBounds) -> Ints | None:
    """Return how long the call of each step took, the last, open one included; else ``None``."""
    step = np.searchsorted(steps.starts_ns, calls.end_ns, side="right") - 1
    if not np.array_equal(step, np.arange(len(steps.starts_ns))):
        return None
    return calls.took_ns
