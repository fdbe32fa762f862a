"""Input pipelines: DALI's threads, and loaders in other processes.

The latter are seen only by the main thread's waiting.

In: annotations and host tasks of one rank. Out: couplings between loader units and steps, and
loading work inferred from when batches arrived.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foretrace.graph.infer.steps.next_calls import LONGEST_NS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foretrace.graph.infer.events import Events
    from foretrace.graph.infer.steps.next_calls import NextCalls
    from foretrace.graph.infer.tasks.host_tasks import HostTasks

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]

_STAGES = tuple(
    re.compile(rf"^\[DALI\]\[Executor\] {stage}$") for stage in ("RunCPU", "RunMixed", "RunGPU")
)
NEXT_CALL = re.compile(r"^enumerate\(DataLoader\)")
USUAL_PAUSE = 0.1
"""Quantile of the pauses between step ranges that is taken for no waiting."""
WAIT_NS = 1_000_000
"""A pause this much longer waited."""
HAND_OVER_NS = 500_000
"""Wake-up of the next stage, at most."""
SLACK_NS = 200_000
"""A hand-over may seem this much early: it happens just before a marker."""
VIOLATIONS = 0.02
"""Share of hand-overs that may contradict an offset (clock noise)."""
ENOUGH_FOR_ONE = 10
"""Of so many hand-overs one may contradict an offset: a loop's last step is not like the others."""
LEAST_STEPS = 2


class Units(NamedTuple):
    """Loader work units of one stage in order: first and last host task of each."""

    first: Ints
    last: Ints


def find_units(events: Events, host: HostTasks) -> list[Units]:
    """Collect the units of each stage; a stage run by several threads keeps the busiest thread."""
    stages = []
    own = host.own_event
    for stage in _STAGES:
        tasks = np.flatnonzero(events.named(stage, own))
        if not len(tasks):
            continue
        threads, count = np.unique(host.thread[tasks], return_counts=True)
        tasks = tasks[host.thread[tasks] == threads[np.argmax(count)]]
        _, first = np.unique(own[tasks], return_index=True)
        first = np.sort(first)
        last = np.append(first[1:], len(tasks)) - 1
        stages.append(Units(tasks[first], tasks[last]))
    return stages


class Coupling(NamedTuple):
    """``src[i]`` hands over to ``dst[i + offset]``, over the whole recording."""

    src: Ints
    dst: Ints
    offset: int
    lag_ns: int
    kind: str


def couple_units(host: HostTasks, stages: list[Units], markers: Ints) -> list[Coupling]:
    """Couple the stages and the training loop: step → RunCPU → RunMixed → RunGPU → step.

    The offset between two chains is the tightest one that no hand-over contradicts, never a
    coincidence in time.
    """
    if not stages or len(markers) < LEAST_STEPS:
        return []
    pairs = [(markers, stages[0].first, "fork")]
    pairs += [(a.last, b.first, "data") for a, b in pairwise(stages)]
    pairs.append((stages[-1].last, markers, "join"))
    couplings = [_couple_tightest(host, src, dst, kind) for src, dst, kind in pairs]
    return [coupling for coupling in couplings if coupling is not None]


def _couple_tightest(host: HostTasks, src: Ints, dst: Ints, kind: str) -> Coupling | None:
    """Pair ``src[i]`` with ``dst[i + c]`` for the smallest consistent c.

    The lag is the smallest hand-over, clock noise aside.
    """
    enough = max(LEAST_STEPS, min(len(src), len(dst)) // 2)
    for offset in range(-len(src) + 1, len(dst)):
        a = src[max(0, -offset) :]
        b = dst[max(0, offset) :]
        both = min(len(a), len(b))
        if both < enough:
            continue
        lead = host.start_ns[b[:both]] - host.end_ns[a[:both]]
        early = lead < -SLACK_NS
        if early.sum() <= max(VIOLATIONS * both, both >= ENOUGH_FOR_ONE):
            lag = int(np.clip(np.quantile(lead[~early], VIOLATIONS), 0, HAND_OVER_NS))
            return Coupling(src, dst, offset, lag, kind)
    return None


class Loads(NamedTuple):
    """Batches that arrived while the main thread waited: one load task each.

    ``consumer`` is the host task that waited; ``work_ns`` the time since the last such arrival;
    ``own_ns`` what fetching costs the consumer itself. Where the recording is too short for what
    bursts bring on average, every batch is a load of ``pace_ns``, else that is 0.
    """

    consumer: Ints
    work_ns: Ints
    arrival_ns: Ints
    own_ns: int
    pace_ns: int = 0


def load_from_calls(calls: NextCalls) -> Loads | None:
    """Find the batches that were waited for inside ``next()``; ``None`` where none was."""
    wait = calls.took_ns - calls.own_ns
    return _find_arrivals(calls.end_ns, calls.consumer, wait, calls.own_ns, calls.waited)


def load_evenly(calls: NextCalls, pace_ns: int) -> Loads:
    """Give every call a batch that takes the loader *pace_ns*: what bursts bring on average."""
    work = np.full(len(calls.consumer), pace_ns)
    return Loads(calls.consumer, work, calls.end_ns - calls.own_ns, calls.own_ns, pace_ns)


def find_marker_waits(host: HostTasks, markers: Ints, range_ends: Ints) -> Loads | None:
    """Find waiting between the end of a step range and the next step, outside all ranges.

    Parameters
    ----------
    range_ends
        End of the step range each marker begins, in ns.
    """
    if len(markers) <= LEAST_STEPS:
        return None
    before = markers[1:] - 1
    began = np.maximum(range_ends[:-1], host.end_ns[before])
    pause = np.clip(host.start_ns[markers[1:]] - began, 0, None)
    own = int(min(np.quantile(pause, USUAL_PAUSE), LONGEST_NS))
    wait = pause - own
    return _find_arrivals(host.start_ns[markers[1:]], markers[1:], wait, own, wait > WAIT_NS)


def _find_arrivals(
    moment_ns: Ints, consumer: Ints, wait: Ints, own: int, waited: Flags
) -> Loads | None:
    """Return what arrived just before *moment_ns* for those that *waited*."""
    if not waited.any():
        return None
    arrival = moment_ns[waited] - own
    work = np.diff(arrival, prepend=arrival[0] - wait[waited][0] - own)
    return Loads(consumer[waited], work, arrival, own)
