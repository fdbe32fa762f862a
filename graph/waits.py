"""Waiting separated from work in API calls.

In: host and device tasks of one rank. Out: what each call costs when nothing blocks it, and
what it waits for. Each blocked call gets exactly one cause, looked for in this order:
synchronisation, its own blocking copy, a full launch queue, the driver lock; else its length stays.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from foretrace.graph.host import SYNC_CALLS, matching

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd
    from numpy.typing import NDArray

    from foretrace.graph.device import Devices
    from foretrace.graph.host import Host
    from foretrace.graph.model import Rules

    Ints = NDArray[np.int64]

LONG_NS = 30_000              # shorter calls are not looked at: scheduling noise
LONG_FACTOR = 4               # ... nor calls within this multiple of their API's median
RETURN_NS = 200_000           # a call that returns within this of the work it waited for, waited for it
SLACK_NS = 2_000              # timestamps of host and device agree no better
STAGING_NS = 300_000          # a pageable upload returns within this of its copy's end, before or after
PAGEABLE_BYTES = 64 * 1024    # smaller pageable uploads are staged and return at once
QUEUE_LIMIT = 1_023           # NVIDIA: launches outstanding on one stream
QUEUE_NEARLY = 900
LOCK_BEFORE_NS, LOCK_AFTER_NS = 20_000, 100_000
SYNC_WORK_NS = 5_000          # unblocked cost of a synchronisation, at most

DOWNLOADS, UPLOADS = re.compile("DtoH"), re.compile("HtoD")
_STREAM_SYNC, _EVENT_SYNC = re.compile("Stream"), re.compile("Event")

NONE, DEVICE, STREAM, EVENT, OWN = range(5)


@dataclass
class Waits:
    """Per host task: unblocked cost, what it waits for, and why it was long.

    ``event_task`` names the device task an event synchronisation waited for (−1: none).
    ``holds_lock`` marks calls that stall other threads' calls while they wait.
    ``return_ns`` is the time from the end of the awaited work to the return, per wait.
    """

    work_ns: Ints
    wait: NDArray[np.int8]
    wait_lane: Ints
    event_task: Ints
    holds_lock: NDArray[np.bool_]
    locked: NDArray[np.bool_]
    queued: NDArray[np.bool_]
    return_ns: Ints
    queue_depth: int | None = None
    counts: dict[str, int] = field(default_factory=dict)


def split_waiting(events: pd.DataFrame, host: Host, devices: Devices, rules: Rules) -> Waits:
    """Find the unblocked cost and the wait of every host task of one rank."""
    rows = len(host)
    waits = Waits(
        work_ns=host.end_ns - host.start_ns,
        wait=np.zeros(rows, np.int8),
        wait_lane=np.full(rows, -1, np.int64),
        event_task=np.full(rows, -1, np.int64),
        holds_lock=np.zeros(rows, bool),
        locked=np.zeros(rows, bool),
        queued=np.zeros(rows, bool),
        return_ns=np.zeros(rows, np.int64),
    )
    if not rows or not len(devices):
        return waits
    usual = _usual(events, host)
    on_lane = launch_order(host, devices)
    outstanding = _outstanding(host, devices, on_lane)
    waits.queue_depth = QUEUE_LIMIT if 0 < outstanding.max(initial=0) <= QUEUE_LIMIT + 1 else None
    if not rules.split_waiting:
        return waits
    _syncs(events, host, devices, on_lane, waits)
    _own_copies(events, host, devices, usual, waits)
    _full_queue(host, usual, outstanding, waits)
    _driver_lock(events, host, usual, waits)
    left = _long(host, usual) & (waits.wait == NONE) & ~waits.queued & ~waits.locked & host.is_call
    waits.counts["long calls kept as work"] = int(left.sum())
    waits.counts["long calls kept as work, us"] = int(waits.work_ns[left].sum() // 1000)
    return waits


def launch_order(host: Host, devices: Devices) -> list[tuple[Ints, Ints]]:
    """Per lane: call starts in launch order, and the device task each one put there."""
    lanes = []
    for lane in range(int(devices.lane.max(initial=-1)) + 1):
        tasks = np.flatnonzero((devices.lane == lane) & (devices.launch >= 0))
        called = host.start_ns[devices.launch[tasks]]
        order = np.lexsort((tasks, called))
        lanes.append((called[order], tasks[order]))
    return lanes


def _usual(events: pd.DataFrame, host: Host) -> Ints:
    """Per host task: the median length of its API, without the calls that look blocked."""
    duration = host.end_ns - host.start_ns
    code = events["name"].cat.codes.to_numpy()[host.event].astype(np.int64)
    order = np.lexsort((duration, code))
    sorted_code, sorted_length = code[order], duration[order]
    first = np.searchsorted(sorted_code, np.arange(code.max() + 2))
    median = np.zeros(code.max() + 1, np.int64)
    for value in np.unique(code):
        lengths = sorted_length[first[value] : first[value + 1]]
        limit = max(LONG_NS, LONG_FACTOR * int(lengths[len(lengths) // 2]))
        short = lengths[: np.searchsorted(lengths, limit, side="right")]
        median[value] = lengths[0] if not len(short) else short[len(short) // 2]
    return median[code]


def _long(host: Host, usual: Ints) -> NDArray[np.bool_]:
    return host.end_ns - host.start_ns > np.maximum(LONG_NS, LONG_FACTOR * usual)


def _outstanding(host: Host, devices: Devices, on_lane: list[tuple[Ints, Ints]]) -> Ints:
    """Per host task that launches: how many launches of its stream had not started yet."""
    pending = np.zeros(len(host), np.int64)
    for called, tasks in on_lane:
        started = np.sort(devices.start_ns[tasks])
        ahead = np.arange(len(tasks)) - np.searchsorted(started, called)
        np.maximum.at(pending, devices.launch[tasks], ahead)
    return pending


def _syncs(
    events: pd.DataFrame, host: Host, devices: Devices, on_lane: list[tuple[Ints, Ints]], waits: Waits
) -> None:
    calls = np.flatnonzero(host.is_call & matching(events["name"], SYNC_CALLS)[host.event])
    if not len(calls):
        return
    named = [matching(events["name"], p)[host.event[calls]] for p in (_STREAM_SYNC, _EVENT_SYNC)]
    scope = np.select(named, [STREAM, EVENT], DEVICE)
    lane = np.where(scope == STREAM, _sync_lane(events, host, devices, calls), -1)
    done, task = _latest_launched(host, devices, on_lane, calls)
    lag = np.int64(0)
    unexplained = 0
    for position, call in enumerate(calls):
        begin, end = host.start_ns[call], host.end_ns[call]
        kind = scope[position]
        if kind == STREAM and lane[position] >= 0:
            at = done[lane[position], position]
        else:
            at = np.where(done[:, position] <= end + SLACK_NS, done[:, position], -1).max(initial=-1)
        if kind == EVENT:
            chosen = int(np.argmax(np.where(done[:, position] == at, 1, 0)))
            within = at >= 0 and 0 <= end - at <= RETURN_NS and at > begin
            waits.event_task[call] = task[chosen, position] if within else -1
        lag = end - at
        waits.wait[call] = kind if (kind != STREAM or lane[position] >= 0) else NONE
        waits.wait_lane[call] = lane[position]
        if at > begin and -SLACK_NS <= lag <= RETURN_NS:
            waits.return_ns[call] = max(lag, 0)
            waits.work_ns[call] = min(end - begin, SYNC_WORK_NS)
        elif end - begin > LONG_NS:
            unexplained += 1
    _share_return(waits, calls, events["name"].cat.codes.to_numpy()[host.event[calls]])
    waits.counts["syncs"] = len(calls)
    waits.counts["syncs that waited for something untraced"] = unexplained


def _sync_lane(events: pd.DataFrame, host: Host, devices: Devices, calls: Ints) -> Ints:
    """Lane a stream synchronisation waits for: the sync record's, else the thread's last launch's."""
    lane_of_stream = dict(zip(devices.stream.tolist(), devices.lane.tolist(), strict=True))
    records = events[events["kind"] == "sync"]
    named = dict(zip(records["correlation"].tolist(), records["wait_stream"].tolist(), strict=True))
    launched = np.full(len(host), -1, np.int64)
    linked = devices.launch >= 0
    launched[devices.launch[linked]] = devices.lane[linked]
    correlation = events["correlation"].to_numpy()[host.event]
    lanes = np.full(len(calls), -1, np.int64)
    launchers = np.flatnonzero(launched >= 0)
    for position, call in enumerate(calls):
        stream = named.get(int(correlation[call]), -1)
        if stream in lane_of_stream:
            lanes[position] = lane_of_stream[stream]
            continue
        before = launchers[: np.searchsorted(launchers, call)]
        if len(before) and host.thread[before[-1]] == host.thread[call]:
            lanes[position] = launched[before[-1]]
    return lanes


def _latest_launched(
    host: Host, devices: Devices, on_lane: list[tuple[Ints, Ints]], calls: Ints
) -> tuple[Ints, Ints]:
    """Per lane and call: end and index of the last task launched before the call (−1: none)."""
    done = np.full((len(on_lane), len(calls)), -1, np.int64)
    task = np.full((len(on_lane), len(calls)), -1, np.int64)
    for lane, (called, tasks) in enumerate(on_lane):
        slot = np.searchsorted(called, host.start_ns[calls]) - 1
        known = slot >= 0
        task[lane, known] = tasks[slot[known]]
        done[lane, known] = devices.end_ns[tasks[slot[known]]]
    return done, task


def _share_return(waits: Waits, calls: Ints, api: Ints) -> None:
    """Every call of one API takes the median return lag of the calls of it that waited."""
    for value in np.unique(api):
        same = calls[api == value]
        seen = waits.return_ns[same][waits.return_ns[same] > 0]
        waits.return_ns[same] = int(np.median(seen)) if len(seen) else 0


def _own_copies(
    events: pd.DataFrame, host: Host, devices: Devices, usual: Ints, waits: Waits
) -> None:
    """Copies that block their caller, found class by class: most of the class return with the copy."""
    copies = np.flatnonzero((devices.kind == "memcpy") & (devices.launch >= 0))
    if not len(copies):
        return
    call = devices.launch[copies]
    name = events["name"].cat.codes.to_numpy()[devices.event[copies]]
    api = events["name"].cat.codes.to_numpy()[host.event[call]]
    size = np.nan_to_num(events["bytes"].to_numpy()[devices.event[copies]], nan=0)
    large = size > PAGEABLE_BYTES
    download = matching(events["name"], DOWNLOADS)[devices.event[copies]]
    upload = matching(events["name"], UPLOADS)[devices.event[copies]]
    late = host.end_ns[call] - devices.end_ns[copies]
    blocks = np.where(download, (late >= -SLACK_NS) & (late <= RETURN_NS), np.abs(late) <= STAGING_NS)
    blocks &= download | (upload & large)
    group = np.stack([api, name, large.astype(api.dtype)])
    for key in np.unique(group, axis=1).T:
        same = (group == key[:, None]).all(axis=0)
        if not blocks[same].mean() > 0.5:  # noqa: PLR2004
            continue
        known = blocks & same
        lag = int(np.median(late[known]))
        waits.wait[call[same]] = OWN
        waits.return_ns[call[same]] = lag
        waits.work_ns[call[known]] = np.minimum(waits.work_ns[call[known]], SYNC_WORK_NS)
        strange = same & ~known
        waits.work_ns[call[strange]] = np.minimum(waits.work_ns[call[strange]], usual[call[strange]])
        if download[same].all():
            waits.holds_lock[call[same]] = True
    waits.counts["blocking copies"] = int((waits.wait == OWN).sum())


def _full_queue(host: Host, usual: Ints, outstanding: Ints, waits: Waits) -> None:
    blocked = _long(host, usual) & host.is_call & (outstanding >= QUEUE_NEARLY) & (waits.wait == NONE)
    if waits.queue_depth is None:
        return
    waits.queued = blocked
    waits.work_ns[blocked] = usual[blocked]
    waits.counts["launches blocked by a full queue"] = int(blocked.sum())


def _driver_lock(events: pd.DataFrame, host: Host, usual: Ints, waits: Waits) -> None:
    """Find calls that could not proceed while another thread's call held the driver's lock.

    First those that began while a blocking download was waiting and did not end before it; then
    those that ended together with another long call which began no later.
    """
    long_call = _long(host, usual) & host.is_call & ~waits.queued
    sync = matching(events["name"], SYNC_CALLS)[host.event]
    suspects = np.flatnonzero(long_call & (waits.wait == NONE) & ~sync)
    for call, holder in _began_during(host, suspects, np.flatnonzero(waits.holds_lock & long_call)):
        waits.locked[call] = True
        beyond = max(int(host.end_ns[call] - host.end_ns[holder]) - LOCK_AFTER_NS, 0)
        waits.work_ns[call] = usual[call] + beyond
    holders = np.flatnonzero(long_call & ~sync)
    for call, near in _ended_together(host, suspects[~waits.locked[suspects]], holders):
        near = near[~waits.locked[near]]  # noqa: PLW2901
        if len(near):
            waits.locked[call] = True
            waits.work_ns[call] = usual[call]
            waits.holds_lock[near] = True
    waits.counts["calls blocked by the driver lock"] = int(waits.locked.sum())


def _began_during(host: Host, calls: Ints, holders: Ints) -> Iterator[tuple[int, int]]:
    """Pair each call with another thread's holder that it began during and outlasted."""
    holders = holders[np.argsort(host.start_ns[holders], kind="stable")]
    if not len(holders):
        return
    slot = np.searchsorted(host.start_ns[holders], host.start_ns[calls], side="right") - 1
    for call, holder in zip(calls[slot >= 0], holders[slot[slot >= 0]], strict=True):
        during = host.start_ns[call] < host.end_ns[holder]
        outlasts = host.end_ns[call] >= host.end_ns[holder] - LOCK_BEFORE_NS
        if during and outlasts and host.thread[call] != host.thread[holder]:
            yield call, holder


def _ended_together(host: Host, calls: Ints, holders: Ints) -> Iterator[tuple[int, Ints]]:
    """Pair each call with the other threads' holders that began no later and end with it."""
    holders = holders[np.argsort(host.end_ns[holders], kind="stable")]
    ends = host.end_ns[holders]
    for call in calls:
        end = host.end_ns[call]
        first, last = np.searchsorted(ends, [end - LOCK_AFTER_NS, end + LOCK_BEFORE_NS + 1])
        near = holders[first:last]
        yield call, near[
            (host.thread[near] != host.thread[call]) & (host.start_ns[near] <= host.start_ns[call])
        ]
