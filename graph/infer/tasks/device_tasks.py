"""Device tasks: kernels, copies and collectives of every stream, and the calls that launched them.

In: the trace's events of one rank and its host tasks. Out: arrays in (device, stream, start) order.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from foretrace.graph.infer.events import find_last, match_names
from foretrace.graph.infer.tasks.launches import find_unanswered
from foretrace.graph.model import DEVICE_KINDS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foretrace.graph.infer.events import Events
    from foretrace.graph.infer.tasks.host_tasks import HostTasks

    Ints = NDArray[np.int64]

KERNEL, MEMCPY, MEMSET, COLLECTIVE, P2P = (
    DEVICE_KINDS.index(kind) for kind in ("kernel", "memcpy", "memset", "collective", "p2p")
)
_COLLECTIVE = re.compile(r"nccl|rccl|oneccl", re.IGNORECASE)
_STREAM_BITS = 40
_P2P = re.compile(r"^(?>.*?[nr]ccl).*send_?recv", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class DeviceTasks:
    """Device tasks of one rank; ``event`` is the row in the rank's events.

    ``kind`` is a code in DEVICE_KINDS. ``launch`` is the host task that put the task there
    (−1: launched before the recording, or lost). ``busy_ns`` is its length without what overlaps
    an earlier task of the same stream, so that the busy time of a stream adds up. ``unanswered``
    are the host tasks that launched something which was not recorded. ``is_repeated`` tasks are
    those of an earlier step, later by whole periods, whose relative spread is ``period_spread``.
    """

    event: Ints
    device: Ints
    stream: Ints
    lane: Ints
    kind: Ints
    start_ns: Ints
    end_ns: Ints
    busy_ns: Ints
    launch: Ints
    unanswered: Ints
    overlaps: int
    is_repeated: NDArray[np.bool_]
    period_spread: float | None = None

    def __len__(self) -> int:
        """Return the number of device tasks."""
        return len(self.event)

    @property
    def lanes(self) -> int:
        """Number of streams."""
        return int(self.lane[-1]) + 1 if len(self) else 0

    @cached_property
    def device_of_lane(self) -> Ints:
        """The device of each stream."""
        return self.device[np.unique(self.lane, return_index=True)[1]]

    @property
    def launching(self) -> Ints:
        """Host tasks that launched something, as often as they did."""
        return self.launch[self.launch >= 0]

    def find_lanes(self, device: Ints, stream: Ints) -> Ints:
        """Return the lane of each stream of a device (−1: none).

        The stream's number alone tells where the device is not known, or the only one.
        """
        _, first = np.unique(self.lane, return_index=True)
        devices, streams = self.device_of_lane, self.stream[first]
        by_number = find_last(streams, stream)
        if len(np.unique(devices)) <= 1:
            return by_number
        places, wanted = (
            (d << _STREAM_BITS) + s for d, s in ((devices, streams), (device, stream))
        )
        return np.where(device >= 0, find_last(places, wanted), by_number)

    def before(self) -> Ints:
        """Return the task before each one on its stream (−1: first)."""
        index = np.arange(len(self)) - 1
        if len(self):
            index[np.append([True], self.lane[1:] != self.lane[:-1])] = -1
        return index


def collect_device_tasks(events: Events, host: HostTasks) -> DeviceTasks:
    """Collect the device work of one rank and join it with its launches by correlation id."""
    rows = np.flatnonzero(events.is_kind("kernel", "memcpy", "memset"))
    launch = _join_launches(events, rows, host)
    return arrange_tasks(
        events, host, rows, events.start_ns[rows], launch, np.zeros(len(rows), bool)
    )


def arrange_tasks(
    events: Events,
    host: HostTasks,
    rows: Ints,
    start: Ints,
    launch: Ints,
    is_repeated: NDArray[np.bool_],
) -> DeviceTasks:
    """Put the device work of event *rows*, with its starts and launches, in order."""
    end = start + events.duration_ns[rows]
    device = events.column("device")[rows].astype(np.int64)
    stream = events.column("stream")[rows]
    order = np.lexsort((rows, end, start, stream, device))
    rows, start, end, launch = (a[order] for a in (rows, start, end, launch))
    device, stream, is_repeated = device[order], stream[order], is_repeated[order]
    fresh = np.ones(len(rows), bool)
    fresh[1:] = (device[1:] != device[:-1]) | (stream[1:] != stream[:-1])
    lane = np.cumsum(fresh) - 1
    reached = find_reached(end, lane)
    busy = np.clip(end - np.maximum(start, reached), 0, None)
    return DeviceTasks(
        event=rows,
        device=device,
        stream=stream,
        lane=lane,
        kind=_tell_kinds(events, rows),
        start_ns=start,
        end_ns=end,
        busy_ns=busy,
        launch=launch,
        unanswered=find_unanswered(events, host, launch),
        overlaps=int(((reached > start) & (busy < end - start)).sum()),
        is_repeated=is_repeated,
    )


def find_reached(end: Ints, lane: Ints) -> Ints:
    """Return the latest end on the same lane before each task."""
    if not len(end):
        return end
    span = np.int64(end.max() - min(end.min(), 0) + 1)
    running = np.maximum.accumulate(end + lane * span) - lane * span
    before = np.empty_like(end)
    before[0] = np.iinfo(np.int64).min // 2
    before[1:] = running[:-1]
    before[1:][lane[1:] != lane[:-1]] = np.iinfo(np.int64).min // 2
    return before


def _tell_kinds(events: Events, rows: Ints) -> Ints:
    """Codes in DEVICE_KINDS; kernels of communication libraries are told by their names."""
    codes = [DEVICE_KINDS.index(k) if k in DEVICE_KINDS else -1 for k in events.kinds]
    kind = np.array(codes, np.int64)[events.kind[rows]]
    name = events.name[rows]
    collective = match_names(events.names, _COLLECTIVE)[name] & (kind == KERNEL)
    kind[collective] = COLLECTIVE
    kind[collective & match_names(events.names, _P2P)[name]] = P2P
    return kind


def _join_launches(events: Events, rows: Ints, host: HostTasks) -> Ints:
    """Join by correlation id; of several calls with one id the first in (thread, start) order."""
    of_call = events.correlation[host.event]
    calls = np.flatnonzero(host.is_call & (of_call >= 0))
    if not len(calls) or not len(rows):
        return np.full(len(rows), -1, np.int64)
    ids = of_call[calls]
    order = np.argsort(ids, kind="stable")
    ids, calls = ids[order], calls[order]
    wanted = events.correlation[rows]
    slot = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
    return np.where((ids[slot] == wanted) & (wanted >= 0), calls[slot], -1)
