"""The task table of one rank's window.

In: `InferredRank` and `Selection`. Out: rows for host tasks, then device tasks, then loads.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from foretrace.graph.infer.tasks.api_calls import EVENT, NONE
from foretrace.graph.infer.tasks.device_tasks import COLLECTIVE, KERNEL
from foretrace.graph.infer.tasks.host_tasks import SYNC_CALLS
from foretrace.graph.model import COSTS, DEVICE_KINDS, PHASES, TASK_COLUMNS, TASK_KINDS, WAITS
from foretrace.util.schema import table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from foretrace.graph.assemble.selection import Selection
    from foretrace.graph.infer.rank import InferredRank
    from foretrace.tracer.trace import TraceMeta

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

MAX_THREADS_PER_SM = 2_048
MAX_BLOCKS_PER_SM = 32
LOCK_FREE = re.compile(
    SYNC_CALLS.pattern + r"|Event|Query|CtxSet|IsCapturing|GetLastError|GetDevice|SetDevice"
)
"""Calls that the driver's lock does not stall."""
IGNORES_LOCK, TAKES_LOCK, HOLDS_LOCK = 0, 1, 2
BATCH = "batch"
_DEVICE_CODES = np.array([TASK_KINDS.index(kind) for kind in DEVICE_KINDS])


@dataclass(frozen=True)
class _Rows:
    """How the table is stacked: so many host tasks, then device tasks, then loads."""

    host: int
    device: int
    load: int

    def join(self, on_host: Any, on_device: Any, on_load: Any, dtype: Any = np.int64) -> Any:
        """Return one column; what is a single value holds for all rows of its part."""
        first_load = self.host + self.device
        column = np.empty(first_load + self.load, dtype)
        column[: self.host] = on_host
        column[self.host : first_load] = on_device
        column[first_load:] = on_load
        return column

    def code(
        self, categories: Sequence[str], on_host: Any, on_device: Any, on_load: Any
    ) -> pd.Categorical:
        """Return one category column; the parts are codes."""
        smallest = np.min_scalar_type(-len(categories) - 1)
        codes = self.join(on_host, on_device, on_load, smallest)
        return pd.Categorical.from_codes(codes, list(categories))


def make_task_table(
    rank: InferredRank, chosen: Selection, meta: TraceMeta, operator_of: Ints
) -> pd.DataFrame:
    """Build the tasks; *operator_of* is the operator row of each event (index −1: none)."""
    host, devices, waits, events = rank.host, rank.devices, rank.waits, rank.events
    h, d = chosen.host, chosen.device
    event = devices.event[d]
    rows = _Rows(len(h), len(d), len(chosen.load))
    fill = _estimate_fill(rank, d, meta)

    def inherit(values: Ints) -> Ints:
        launch = devices.launch[d]
        return np.where(launch >= 0, values[launch], -1) if len(values) else np.full(len(d), -1)

    length = host.end_ns[h] - host.start_ns[h]
    step = np.full(len(host), -1)
    step[h] = np.searchsorted(rank.window.starts_ns, host.start_ns[h], side="right") - 1
    phase = inherit(rank.phase)
    phase[devices.kind[d] >= COLLECTIVE] = PHASES.index("communication")
    operator = operator_of[host.operator]
    wait = np.where(waits.wait[h] == EVENT, NONE, waits.wait[h])
    wait_lane = np.where(waits.wait_lane[h] >= 0, chosen.first_stream + waits.wait_lane[h], -1)
    recorded, unblocked = COSTS.index("recorded"), COSTS.index("unblocked")
    cost = np.where(waits.work_ns[h] < length, unblocked, recorded)
    load_kind, load_phase = TASK_KINDS.index("load"), PHASES.index("load")
    loads = _load_times(rank, chosen)
    lane, stream = _number_lanes(rank, chosen), chosen.first_stream + devices.lane[d]
    kind, device_kind = _tell_host_kinds(rank)[h], _DEVICE_CODES[devices.kind[d]]
    join, code = rows.join, rows.code
    values = {
        "name": _make_names(rank, chosen),
        "kind": code(TASK_KINDS, kind, device_kind, load_kind),
        "lane": join(lane, stream, chosen.loader_lane, np.int32),
        "start_ns": join(host.start_ns[h], devices.start_ns[d], loads[0]),
        "duration_ns": join(length, devices.end_ns[d] - devices.start_ns[d], loads[1]),
        "work_ns": join(_own_work(rank, chosen), _count_overlap_once(rank, d, fill), loads[2]),
        "step": join(step[h], inherit(step), _load_steps(rank, chosen, step), np.int32),
        "phase": code(PHASES, rank.phase[h], phase, load_phase),
        "module": code(rank.module_names, rank.module[h], inherit(rank.module), -1),
        "operator": join(operator[h], inherit(operator), -1, np.int32),
        "bytes": join(np.nan, events.column("bytes")[event], np.nan, np.float64),
        "blocks": join(-1, events.column("blocks")[event], -1),
        "block_threads": join(-1, events.column("block_threads")[event], -1, np.int32),
        "fill": join(np.nan, fill, np.nan, np.float64),
        "wait": code(WAITS, wait, NONE, NONE),
        "wait_lane": join(wait_lane, -1, -1, np.int32),
        "return_ns": join(waits.return_ns[h], 0, 0),
        "lock": join(_tell_locks(rank, h), IGNORES_LOCK, IGNORES_LOCK, np.int8),
        "cost": code(COSTS, cost, recorded, recorded),
    }
    return table(TASK_COLUMNS, values, chosen.rows)


def _make_names(rank: InferredRank, chosen: Selection) -> pd.Categorical:
    event = np.concatenate([rank.host.event[chosen.host], rank.devices.event[chosen.device]])
    code = rank.events.name[event]
    names = rank.events.frame["name"].array
    if not len(chosen.load):
        return pd.Categorical.from_codes(code, dtype=names.dtype)
    categories = names.categories
    if BATCH not in categories:
        categories = categories.append(pd.Index([BATCH], dtype=categories.dtype))
    batch = np.full(len(chosen.load), categories.get_loc(BATCH))
    return pd.Categorical.from_codes(np.concatenate([code, batch]), categories)


def _tell_host_kinds(rank: InferredRank) -> Ints:
    """Codes in TASK_KINDS of all host tasks."""
    kind = np.full(len(rank.host), TASK_KINDS.index("host"))
    kind[rank.devices.launching] = TASK_KINDS.index("launch")
    sync = rank.events.named(SYNC_CALLS, rank.host.event) & rank.host.is_call
    kind[sync] = TASK_KINDS.index("sync")
    return kind


def _number_lanes(rank: InferredRank, chosen: Selection) -> Ints:
    lane = np.zeros(len(rank.host), np.int64)
    for number, thread in enumerate(chosen.threads):
        lane[rank.host.spans[thread]] = number
    return lane[chosen.host]


def _tell_locks(rank: InferredRank, rows: Ints) -> Ints:
    is_free = rank.events.named(LOCK_FREE, rank.host.event[rows])
    takes = np.where(rank.host.is_call[rows] & ~is_free, TAKES_LOCK, IGNORES_LOCK)
    return np.where(rank.waits.holds_lock[rows], HOLDS_LOCK, takes)


def _own_work(rank: InferredRank, chosen: Selection) -> Ints:
    """Work of host tasks; one that waited for its batch keeps what fetching costs by itself."""
    work = rank.waits.work_ns[chosen.host]
    if rank.loads is not None:
        consumer = chosen.host_row[rank.loads.consumer[chosen.load]]
        work[consumer] = np.minimum(work[consumer], rank.loads.own_ns)
    return work


def _load_times(rank: InferredRank, chosen: Selection) -> tuple[Ints, Ints, Ints]:
    """Start, length and work of the loads.

    The work of the window's first one reaches back around the window to the last arrival.
    """
    if rank.loads is None or not len(chosen.load):
        none = np.empty(0, np.int64)
        return none, none, none
    length = rank.loads.work_ns[chosen.load]
    arrival = rank.loads.arrival_ns[chosen.load]
    work = length.copy()
    if rank.loads.pace_ns:
        return arrival - length, length, work
    work[0] = (arrival[0] - rank.window.start_ns) + (rank.window.end_ns - arrival[-1])
    return arrival - length, length, work


def _load_steps(rank: InferredRank, chosen: Selection, step: Ints) -> Ints:
    if rank.loads is None:
        return np.empty(0, np.int64)
    return step[rank.loads.consumer[chosen.load]]


def _estimate_fill(rank: InferredRank, rows: Ints, meta: TraceMeta) -> Floats:
    """Blocks over the blocks that fit on the device at once; NaN when either is unknown."""
    event = rank.devices.event[rows]
    blocks = rank.events.column("blocks")[event].astype(np.float64)
    threads = rank.events.column("block_threads")[event].astype(np.float64)
    resident = rank.events.column("blocks_per_sm")[event]
    device = rank.devices.device[rows]
    sms = np.full(int(device.max(initial=-1)) + 2, np.nan)
    for each in meta.devices:
        if each.sm_count and 0 <= each.index < len(sms) - 1:
            sms[each.index] = each.sm_count
    with np.errstate(divide="ignore", invalid="ignore"):
        bound = np.clip(np.floor(MAX_THREADS_PER_SM / threads), 1, MAX_BLOCKS_PER_SM)
        resident = np.where(np.isnan(resident), bound, resident)
        return np.where((blocks > 0) & (threads > 0), blocks / (sms[device] * resident), np.nan)


def _count_overlap_once(rank: InferredRank, rows: Ints, fill: Floats) -> Ints:
    """Return the work of device tasks; of kernels that each fill the device, the overlap once.

    One that begins before another has drained works for the rest only. One that ran wholly inside
    another keeps its length: without the other one it is not free.
    """
    devices = rank.devices
    busy = devices.busy_ns[rows].copy()
    full = np.flatnonzero((devices.kind[rows] == KERNEL) & (np.nan_to_num(fill, nan=0) >= 1))
    for device in np.unique(devices.device[rows[full]]):
        here = full[devices.device[rows[full]] == device]
        here = here[np.argsort(devices.start_ns[rows[here]], kind="stable")]
        start, end = devices.start_ns[rows[here]], devices.end_ns[rows[here]]
        reached = np.append(start[:1], np.maximum.accumulate(end)[:-1])
        rest = np.clip(end - np.maximum(start, reached), 0, None)
        busy[here] = np.where(rest > 0, np.minimum(busy[here], rest), busy[here])
    return busy
