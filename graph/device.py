"""Device tasks: kernels, copies and collectives of every stream, and the calls that launched them.

In: the trace's events of one rank and its host tasks. Out: arrays in (device, stream, start) order.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foretrace.graph.host import kind_is, matching

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from foretrace.graph.host import Host

    Ints = NDArray[np.int64]

_COLLECTIVE = re.compile(r"nccl|rccl|oneccl", re.IGNORECASE)
_P2P = re.compile(r"(nccl|rccl).*send_?recv", re.IGNORECASE)


@dataclass(frozen=True)
class Devices:
    """Device tasks of one rank; ``event`` is the row in the rank's events.

    ``launch`` is the host task that put it there (−1: launched before the recording, or lost).
    ``busy_ns`` is its length without what overlaps an earlier task of the same stream, so that
    the busy time of a stream adds up.
    """

    event: Ints
    device: Ints
    stream: Ints
    lane: Ints
    kind: NDArray[np.str_]
    start_ns: Ints
    end_ns: Ints
    busy_ns: Ints
    launch: Ints
    overlaps: int

    def __len__(self) -> int:
        """Return the number of device tasks."""
        return len(self.event)

    def before(self) -> Ints:
        """Return the task before each one on its stream (−1: first)."""
        index = np.arange(len(self)) - 1
        if len(self):
            index[np.append([True], self.lane[1:] != self.lane[:-1])] = -1
        return index


def device_tasks(events: pd.DataFrame, host: Host) -> Devices:
    """Collect the device work of one rank and join it with its launches by correlation id."""
    rows = np.flatnonzero(kind_is(events, "kernel", "memcpy", "memset"))
    start = events["start_ns"].to_numpy()[rows]
    end = start + events["duration_ns"].to_numpy()[rows]
    device = events["device"].to_numpy()[rows].astype(np.int64)
    stream = events["stream"].to_numpy()[rows]
    order = np.lexsort((rows, end, start, stream, device))
    rows, start, end, device, stream = (a[order] for a in (rows, start, end, device, stream))
    fresh = np.ones(len(rows), bool)
    fresh[1:] = (device[1:] != device[:-1]) | (stream[1:] != stream[:-1])
    lane = np.cumsum(fresh) - 1
    reached = _reached(end, lane)
    busy = np.clip(end - np.maximum(start, reached), 0, None)
    return Devices(
        event=rows,
        device=device,
        stream=stream,
        lane=lane,
        kind=_kinds(events, rows),
        start_ns=start,
        end_ns=end,
        busy_ns=busy,
        launch=_launches(events, rows, host),
        overlaps=int(((reached > start) & (busy < end - start)).sum()),
    )


def _reached(end: Ints, lane: Ints) -> Ints:
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


def _kinds(events: pd.DataFrame, rows: Ints) -> NDArray[np.str_]:
    values = np.append(events["kind"].cat.categories.to_numpy(dtype="<U10"), [""])
    kind = values[events["kind"].cat.codes.to_numpy()[rows]]
    collective = matching(events["name"], _COLLECTIVE)[rows] & (kind == "kernel")
    p2p = matching(events["name"], _P2P)[rows] & collective
    return np.where(p2p, "p2p", np.where(collective, "collective", kind))


def _launches(events: pd.DataFrame, rows: Ints, host: Host) -> Ints:
    correlation = events["correlation"].to_numpy()
    calls = np.flatnonzero(host.is_call & (correlation[host.event] >= 0))
    if not len(calls) or not len(rows):
        return np.full(len(rows), -1, np.int64)
    ids = correlation[host.event[calls]]
    order = np.argsort(ids, kind="stable")
    ids, calls = ids[order], calls[order]
    wanted = correlation[rows]
    slot = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
    return np.where((ids[slot] == wanted) & (wanted >= 0), calls[slot], -1)
