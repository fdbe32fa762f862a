"""The task table of one rank's window.

In: `Parts` and `Selection`. Out: rows for host tasks, then device tasks, then loads.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from foretrace.graph.calls import EVENT, NONE
from foretrace.graph.device import COLLECTIVE, KERNEL
from foretrace.graph.host import SYNC_CALLS
from foretrace.graph.model import COSTS, DEVICE_KINDS, PHASES, TASK_COLUMNS, TASK_KINDS, WAITS
from foretrace.schema import table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foretrace.graph.parts import Parts, Selection
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


def task_table(parts: Parts, chosen: Selection, meta: TraceMeta, operator_of: Ints) -> pd.DataFrame:
    """Build the tasks; *operator_of* is the operator row of each event (index −1: none)."""
    host, devices, waits = parts.host, parts.devices, parts.waits
    h, d = chosen.host, chosen.device
    launch = devices.launch[d]
    linked = launch >= 0
    fill = _fill(parts, d, meta)

    def joined(on_host: Any, on_device: Any, on_load: Any) -> Any:
        parts_of = ((on_host, len(h)), (on_device, len(d)), (on_load, len(chosen.load)))
        return np.concatenate([np.broadcast_to(part, count) for part, count in parts_of])

    def inherited(values: Ints) -> Ints:
        return np.where(linked, values[launch], -1) if len(values) else np.full(len(d), -1)

    length = host.end_ns[h] - host.start_ns[h]
    step = np.full(len(host), -1)
    step[h] = np.searchsorted(parts.window.starts_ns, host.start_ns[h], side="right") - 1
    device_phase = inherited(parts.phase)
    device_phase[devices.kind[d] >= COLLECTIVE] = PHASES.index("communication")
    operator = operator_of[host.operator]
    wait = np.where(waits.wait[h] == EVENT, NONE, waits.wait[h])
    wait_lane = np.where(waits.wait_lane[h] >= 0, chosen.first_stream + waits.wait_lane[h], -1)
    cost = np.where(waits.work_ns[h] < length, COSTS.index("unblocked"), 0)
    loads = _load_times(parts, chosen)
    values = {
        "name": _names(parts, chosen),
        "kind": _coded(
            joined(_host_kinds(parts)[h], _DEVICE_CODES[devices.kind[d]], TASK_KINDS.index("load")),
            TASK_KINDS,
        ),
        "lane": joined(
            _lane_of_thread(parts, chosen),
            chosen.first_stream + devices.lane[d],
            chosen.loader_lane,
        ),
        "start_ns": joined(host.start_ns[h], devices.start_ns[d], loads[0]),
        "duration_ns": joined(length, devices.end_ns[d] - devices.start_ns[d], loads[1]),
        "work_ns": joined(_own_work(parts, chosen), _exclusive(parts, d, fill), loads[2]),
        "step": joined(step[h], inherited(step), _load_steps(parts, chosen, step)),
        "phase": _coded(joined(parts.phase[h], device_phase, PHASES.index("load")), PHASES),
        "module": _coded(
            joined(parts.module[h], inherited(parts.module), -1), tuple(parts.module_names)
        ),
        "operator": joined(operator[h], inherited(operator), -1),
        "bytes": joined(np.nan, parts.events.column("bytes")[devices.event[d]], np.nan),
        "flops": joined(np.nan, np.nan, np.nan),
        "blocks": joined(-1, parts.events.column("blocks")[devices.event[d]], -1),
        "fill": joined(np.nan, fill, np.nan),
        "wait": _coded(joined(wait, NONE, NONE), WAITS),
        "wait_lane": joined(wait_lane, -1, -1),
        "return_ns": joined(waits.return_ns[h], 0, 0),
        "lock": joined(_locks(parts, h), IGNORES_LOCK, IGNORES_LOCK),
        "cost": _coded(joined(cost, 0, 0), COSTS),
    }
    return table(TASK_COLUMNS, values, chosen.rows)


def _coded(codes: Ints, categories: tuple[str, ...]) -> pd.Categorical:
    return pd.Categorical.from_codes(codes, list(categories))


def _names(parts: Parts, chosen: Selection) -> pd.Categorical:
    event = np.concatenate([parts.host.event[chosen.host], parts.devices.event[chosen.device]])
    code = parts.events.name[event]
    names = parts.events.frame["name"].array
    if not len(chosen.load):
        return pd.Categorical.from_codes(code, dtype=names.dtype)
    categories = names.categories
    if BATCH not in categories:
        categories = categories.append(pd.Index([BATCH], dtype=categories.dtype))
    batch = np.full(len(chosen.load), categories.get_loc(BATCH))
    return pd.Categorical.from_codes(np.concatenate([code, batch]), categories)


def _host_kinds(parts: Parts) -> Ints:
    """Codes in TASK_KINDS of all host tasks."""
    kind = np.full(len(parts.host), TASK_KINDS.index("host"))
    kind[parts.devices.launching] = TASK_KINDS.index("launch")
    sync = parts.events.named(SYNC_CALLS, parts.host.event) & parts.host.is_call
    kind[sync] = TASK_KINDS.index("sync")
    return kind


def _lane_of_thread(parts: Parts, chosen: Selection) -> Ints:
    order = np.argsort(chosen.threads, kind="stable")
    thread = parts.host.thread[chosen.host]
    return order[np.searchsorted(chosen.threads, thread, sorter=order)]


def _locks(parts: Parts, rows: Ints) -> Ints:
    is_free = parts.events.named(LOCK_FREE, parts.host.event[rows])
    takes = np.where(parts.host.is_call[rows] & ~is_free, TAKES_LOCK, IGNORES_LOCK)
    return np.where(parts.waits.holds_lock[rows], HOLDS_LOCK, takes)


def _own_work(parts: Parts, chosen: Selection) -> Ints:
    """Work of host tasks; one that waited for its batch keeps what fetching costs by itself."""
    work = parts.waits.work_ns[chosen.host]
    if parts.loads is not None:
        consumer = chosen.host_row[parts.loads.consumer[chosen.load]]
        work[consumer] = np.minimum(work[consumer], parts.loads.own_ns)
    return work


def _load_times(parts: Parts, chosen: Selection) -> tuple[Ints, Ints, Ints]:
    """Start, length and work of the loads.

    The work of the window's first one reaches back around the window to the last arrival.
    """
    if parts.loads is None or not len(chosen.load):
        none = np.empty(0, np.int64)
        return none, none, none
    length = parts.loads.work_ns[chosen.load]
    arrival = parts.loads.arrival_ns[chosen.load]
    work = length.copy()
    work[0] = (arrival[0] - parts.window.start_ns) + (parts.window.end_ns - arrival[-1])
    return arrival - length, length, work


def _load_steps(parts: Parts, chosen: Selection, step: Ints) -> Ints:
    if parts.loads is None:
        return np.empty(0, np.int64)
    return step[parts.loads.consumer[chosen.load]]


def _fill(parts: Parts, rows: Ints, meta: TraceMeta) -> Floats:
    """Blocks over the blocks that fit on the device at once; NaN when either is unknown."""
    event = parts.devices.event[rows]
    blocks = parts.events.column("blocks")[event].astype(np.float64)
    threads = parts.events.column("block_threads")[event].astype(np.float64)
    resident = parts.events.column("blocks_per_sm")[event]
    device = parts.devices.device[rows]
    sms = np.full(int(device.max(initial=-1)) + 2, np.nan)
    for each in meta.devices:
        if each.sm_count and 0 <= each.index < len(sms) - 1:
            sms[each.index] = each.sm_count
    with np.errstate(divide="ignore", invalid="ignore"):
        bound = np.clip(np.floor(MAX_THREADS_PER_SM / threads), 1, MAX_BLOCKS_PER_SM)
        resident = np.where(np.isnan(resident), bound, resident)
        return np.where((blocks > 0) & (threads > 0), blocks / (sms[device] * resident), np.nan)


def _exclusive(parts: Parts, rows: Ints, fill: Floats) -> Ints:
    """Work of device tasks; where kernels that each fill the device overlap, time counts once."""
    devices = parts.devices
    busy = devices.busy_ns[rows].copy()
    full = np.flatnonzero((devices.kind[rows] == KERNEL) & (np.nan_to_num(fill, nan=0) >= 1))
    for device in np.unique(devices.device[rows[full]]):
        here = full[devices.device[rows[full]] == device]
        here = here[np.argsort(devices.start_ns[rows[here]], kind="stable")]
        start, end = devices.start_ns[rows[here]], devices.end_ns[rows[here]]
        reached = np.append(start[:1], np.maximum.accumulate(end)[:-1])
        busy[here] = np.minimum(busy[here], np.clip(end - np.maximum(start, reached), 0, None))
    return busy
