"""What a device adds on its own: gaps between tasks, launch latency, waits between streams.

In: host and device tasks of one rank with blocked calls known. Out: estimates and edges.
Nothing here is kept per task: a device lane copies no recorded start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foretrace.graph.host import WAIT_EVENT_CALLS, matching

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from foretrace.graph.device import Devices
    from foretrace.graph.host import Host
    from foretrace.graph.waits import Waits

    Ints = NDArray[np.int64]

GAP_LIMIT_NS = 20_000         # a longer pause between two queued tasks has another cause
DEFAULT_LATENCY_NS = 8_000    # where no launch ever met an idle stream
LATENCY_LIMIT_NS = 1_000_000  # a later start has another cause than the launch
BACK_TO_BACK_NS = 2_000
LARGE_COPY_BYTES = 64 * 1024


class Edges(NamedTuple):
    """Device-to-device edges with the inference that found each."""

    src: Ints
    dst: Ints
    rule: NDArray[np.str_]


def kernel_gaps(devices: Devices, host: Host) -> dict[tuple[str, str], int]:
    """Mean pause between back-to-back tasks of one stream, by kind before and after, in ns.

    Only pairs count whose second task was launched well before the first one ended, while no
    other stream of the device was at work (where there are such pairs at all).
    """
    before = devices.before()
    known = np.flatnonzero((before >= 0) & (devices.launch >= 0))
    pause = devices.start_ns[known] - devices.end_ns[before[known]]
    waiting = host.end_ns[devices.launch[known]] + BACK_TO_BACK_NS < devices.end_ns[before[known]]
    keep = waiting & (pause >= 0) & (pause < GAP_LIMIT_NS)
    alone = ~_shared(devices)[known]
    keep &= alone if (keep & alone).any() else keep
    known, pause = known[keep], pause[keep]
    first, second = devices.kind[before[known]], devices.kind[known]
    gaps: dict[tuple[str, str], int] = {}
    for a in np.unique(first):
        for b in np.unique(second):
            same = (first == a) & (second == b)
            if same.any():
                gaps[str(a), str(b)] = int(pause[same].mean())
    return gaps


def _shared(devices: Devices) -> NDArray[np.bool_]:
    """Per task: was a kernel of another stream running when it started."""
    shared = np.zeros(len(devices), bool)
    kernels = np.flatnonzero(devices.kind != "memcpy")
    for lane in np.unique(devices.lane[kernels]):
        others = kernels[(devices.lane[kernels] != lane)]
        others = others[np.argsort(devices.start_ns[others], kind="stable")]
        mine = np.flatnonzero(devices.lane == lane)
        if not len(others):
            continue
        reached = np.maximum.accumulate(devices.end_ns[others])
        slot = np.searchsorted(devices.start_ns[others], devices.start_ns[mine]) - 1
        shared[mine] = (slot >= 0) & (reached[slot] > devices.start_ns[mine] - GAP_LIMIT_NS)
    return shared


def stream_lags(devices: Devices, gaps: dict[tuple[str, str], int]) -> Ints:
    """Per device task: the gap after the task before it on its stream (0 for the first)."""
    before = devices.before()
    fallback = int(np.median(list(gaps.values()))) if gaps else 0
    lags = np.zeros(len(devices), np.int64)
    for b in np.unique(devices.kind):
        for a in np.unique(devices.kind):
            same = (before >= 0) & (devices.kind[before] == a) & (devices.kind == b)
            lags[same] = gaps.get((str(a), str(b)), fallback)
    return lags


def launch_lags(
    events: pd.DataFrame, devices: Devices, host: Host, waits: Waits, *, from_start: bool
) -> tuple[Ints, int]:
    """Per device task: call start to earliest start, and the median over plain kernels, in ns.

    Estimated per class of work from launches that met an idle stream and were not blocked.
    With ``from_start`` off, the call's own length is added: the launch would happen at its end.
    """
    before = devices.before()
    linked = devices.launch >= 0
    call = np.where(linked, devices.launch, 0)
    idle = linked & ((before < 0) | (devices.end_ns[before] < host.start_ns[call]))
    idle &= ~(waits.locked[call] | waits.queued[call])
    latency = devices.start_ns - host.start_ns[call]
    size = np.nan_to_num(events["bytes"].to_numpy()[devices.event], nan=0)
    name = events["name"].cat.codes.to_numpy()[devices.event]
    copies = devices.kind == "memcpy"
    group = np.where(copies, 2 * name.astype(np.int64) + (size > LARGE_COPY_BYTES), -1)
    group = np.where(devices.kind == "memset", -2, group)
    usable = idle & (latency >= 0) & (latency < LATENCY_LIMIT_NS)
    kernels = usable & (group == -1)
    overall = int(np.median(latency[kernels])) if kernels.any() else DEFAULT_LATENCY_NS
    lags = np.full(len(devices), overall, np.int64)
    for value in np.unique(group):
        seen = usable & (group == value)
        if seen.any():
            lags[group == value] = int(np.median(latency[seen]))
    if not from_start:
        lags = lags + np.where(linked, waits.work_ns[call], 0)
    return lags, overall


def event_edges(events: pd.DataFrame, devices: Devices, host: Host, group: Ints) -> Edges:
    """Edges between streams for ``cudaStreamWaitEvent`` and its kin.

    The recorded source is used where synchronisation records name it. Elsewhere the source is,
    on each other stream of the same thread *group*, the last task launched before the wait whose
    recorded end is consistent with the waiting task's start.

    Parameters
    ----------
    group
        Per host task: which threads work together (the training threads share one number).
    """
    calls = np.flatnonzero(host.is_call & matching(events["name"], WAIT_EVENT_CALLS)[host.event])
    linked = np.flatnonzero(devices.launch >= 0)
    if not len(calls) or not len(linked):
        return Edges(*(np.empty(0, np.int64),) * 2, np.empty(0, "<U8"))
    launched_at = host.start_ns[devices.launch[linked]]
    order = np.argsort(launched_at, kind="stable")
    linked, launched_at = linked[order], launched_at[order]
    waiting, source, recorded_at = _recorded_waits(events, devices, host, calls)
    unknown = waiting < 0
    waiting[unknown] = _next_lane_of_thread(devices, host, linked, calls[unknown])
    src_parts, dst_parts, rule_parts = [], [], []
    lanes = int(devices.lane.max()) + 1
    lane_group = _lane_groups(devices, host, group, lanes)
    per_lane = [linked[devices.lane[linked] == lane] for lane in range(lanes)]
    called = [host.start_ns[devices.launch[tasks]] for tasks in per_lane]
    target = _next_launch(per_lane, called, waiting, host.start_ns[calls])
    for lane in range(lanes):
        named = (source == lane) & (target >= 0)
        guess = (source < 0) & (target >= 0) & (waiting != lane)
        guess &= lane_group[lane][group[calls]] if len(calls) else guess
        at = np.where(named, recorded_at, host.start_ns[calls])
        slot = np.searchsorted(called[lane], at) - 1
        slot = _walk_back(slot, guess, devices, per_lane[lane], target)
        found = (named | guess) & (slot >= 0)
        src_parts.append(per_lane[lane][slot[found]])
        dst_parts.append(target[found])
        rule_parts.append(np.where(named[found], "recorded", "inferred"))
    src, dst = np.concatenate(src_parts), np.concatenate(dst_parts)
    rule = np.concatenate(rule_parts)
    keep = (devices.lane[src] != devices.lane[dst]) & (src >= 0)
    pair = src[keep] * len(devices) + dst[keep]
    _, first = np.unique(pair, return_index=True)
    return Edges(src[keep][first], dst[keep][first], rule[keep][first])


def _recorded_waits(
    events: pd.DataFrame, devices: Devices, host: Host, calls: Ints
) -> tuple[Ints, Ints, Ints]:
    """Per call: waiting lane, source lane (−1: unknown) and when the awaited event was recorded."""
    lane_of = dict(zip(devices.stream.tolist(), devices.lane.tolist(), strict=True))
    sync = events[(events["kind"] == "sync") & (events["correlation"] >= 0)]
    record = {
        c: (s, w, e)
        for c, s, w, e in zip(
            *(sync[k].tolist() for k in ("correlation", "stream", "wait_stream", "wait_event")),
            strict=True,
        )
    }
    correlation = events["correlation"].to_numpy()
    is_call = host.is_call & (correlation[host.event] >= 0)
    at_call = dict(zip(correlation[host.event[is_call]].tolist(), host.start_ns[is_call].tolist(), strict=True))
    waiting = np.full(len(calls), -1, np.int64)
    source = np.full(len(calls), -1, np.int64)
    recorded_at = host.start_ns[calls].copy()
    for position, call in enumerate(calls):
        found = record.get(int(correlation[host.event[call]]))
        if found is None:
            continue
        stream, wait_stream, wait_event = found
        waiting[position] = lane_of.get(stream, -1)
        if wait_event in at_call and wait_stream in lane_of:
            source[position] = lane_of[wait_stream]
            recorded_at[position] = at_call[wait_event]
    return waiting, source, recorded_at


def _next_lane_of_thread(devices: Devices, host: Host, linked: Ints, calls: Ints) -> Ints:
    """Lane of the next launch each call's thread makes (−1: none follows)."""
    launcher = np.sort(devices.launch[linked])
    lane = np.full(len(host), -1, np.int64)
    lane[devices.launch[linked]] = devices.lane[linked]
    slot = np.searchsorted(launcher, calls)
    slot_ok = slot < len(launcher)
    following = launcher[np.minimum(slot, len(launcher) - 1)]
    same = slot_ok & (host.thread[following] == host.thread[calls])
    return np.where(same, lane[following], -1)


def _lane_groups(devices: Devices, host: Host, group: Ints, lanes: int) -> NDArray[np.bool_]:
    """Whether a group of threads ever launches on a lane: [lane, group]."""
    used = np.zeros((lanes, int(group.max(initial=0)) + 1), bool)
    linked = devices.launch >= 0
    used[devices.lane[linked], group[devices.launch[linked]]] = True
    return used


def _next_launch(per_lane: list[Ints], called: list[Ints], waiting: Ints, at: Ints) -> Ints:
    target = np.full(len(waiting), -1, np.int64)
    for lane, tasks in enumerate(per_lane):
        here = np.flatnonzero(waiting == lane)
        slot = np.searchsorted(called[lane], at[here])
        inside = slot < len(tasks)
        target[here[inside]] = tasks[slot[inside]]
    return target


def _walk_back(slot: Ints, guess: NDArray[np.bool_], devices: Devices, tasks: Ints, target: Ints) -> Ints:
    """Step back from each guess until its recorded end is no later than its target's start."""
    if not len(tasks):
        return np.full_like(slot, -1)
    while True:
        late = guess & (slot >= 0)
        late[late] = devices.end_ns[tasks[slot[late]]] > devices.start_ns[target[late]] + BACK_TO_BACK_NS
        if not late.any():
            return slot
        slot = np.where(late, slot - 1, slot)
