"""The tables of a graph, from everything that was found about one rank.

In: `Parts`. Out: a `Graph` of the window's tasks; edges that leave the window at its end come
back at its beginning, one repetition later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from foretrace.graph.deflate import host_overhead
from foretrace.graph.edges import edge_table
from foretrace.graph.host import SYNC_CALLS, kind_is, matching
from foretrace.graph.loaders import NEXT_CALL
from foretrace.graph.model import (
    LANE_COLUMNS,
    OPERATOR_COLUMNS,
    PHASES,
    TASK_COLUMNS,
    WAITS,
    Graph,
    Platform,
    Rules,
)
from foretrace.graph.waits import OWN
from foretrace.schema import table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foretrace.graph.device import Devices
    from foretrace.graph.host import Host
    from foretrace.graph.loaders import Chain, Loads
    from foretrace.graph.streams import Edges
    from foretrace.graph.threads import Threads
    from foretrace.graph.waits import Waits
    from foretrace.graph.window import Window
    from foretrace.tracer.trace import TraceMeta

    Ints = NDArray[np.int64]

MAX_THREADS_PER_SM = 2_048
MAX_BLOCKS_PER_SM = 32
LOCK_FREE = SYNC_CALLS.pattern + r"|Event|Query|CtxSet|IsCapturing|GetLastError|GetDevice|SetDevice"


@dataclass(frozen=True)
class Parts:
    """What was found about one rank; rows are host and device tasks of the whole recording."""

    events: pd.DataFrame
    host: Host
    devices: Devices
    threads: Threads
    waits: Waits
    window: Window
    markers: Ints
    gaps: dict[tuple[str, str], int]
    stream_lags: Ints
    launch_lags: Ints
    plain_latency: int
    event_edges: Edges | None
    chains: list[Chain]
    loads: Loads | None
    phase: Ints
    module: Ints
    module_names: list[str]


@dataclass(frozen=True)
class Selection:
    """Which host and device tasks and loads are in the window, and their row in the graph."""

    host: Ints
    device: Ints
    load: Ints
    host_row: Ints
    device_row: Ints
    load_row: Ints
    lane_of_thread: dict[int, int]
    first_stream: int
    loader_lane: int

    @property
    def rows(self) -> int:
        """Number of tasks in the graph."""
        return len(self.host) + len(self.device) + len(self.load)


def assemble(parts: Parts, meta: TraceMeta, rank: int, rules: Rules) -> Graph:
    """Put the window's tasks, edges, lanes and operators into tables."""
    chosen = _select(parts)
    lanes = _lanes(parts, chosen, rank)
    tasks, operators = _tasks(parts, chosen, meta)
    overhead = host_overhead(parts, chosen, meta) if rules.deflate else None
    if overhead is not None:
        tasks["work_ns"] = np.where(
            np.arange(len(tasks)) < len(chosen.host),
            np.clip(tasks["work_ns"].to_numpy() - overhead.per_segment_ns, 0, None),
            tasks["work_ns"].to_numpy(),
        ).astype(np.int64)
    edges = edge_table(parts, chosen, overhead)
    return Graph(
        tasks=tasks,
        edges=edges,
        lanes=lanes,
        operators=operators,
        meta=meta,
        steps=parts.window.steps,
        measured_step_ns=parts.window.measured_ns,
        step_samples_ns=parts.window.samples_ns,
        rules=rules,
        platform=_platform(parts, chosen, overhead.per_segment_ns if overhead else 0.0),
        notes=_notes(parts, chosen),
        extra={"host_period_ns": parts.window.host_ns, "device_period_ns": parts.window.device_ns},
    )


def _select(parts: Parts) -> Selection:
    host, devices, window, threads = parts.host, parts.devices, parts.window, parts.threads
    kept_threads = {threads.main, *threads.subordinates, *threads.loaders}
    launching = np.zeros(len(host), bool)
    launching[devices.launch[devices.launch >= 0]] = True
    for thread in threads.others:
        if launching[host.thread == thread].any():
            kept_threads.add(thread)
    inside = (host.start_ns >= window.start_ns) & (host.start_ns < window.end_ns)
    inside &= np.isin(host.thread, list(kept_threads))
    host_rows = np.flatnonzero(inside)
    device_rows = _selected_devices(devices, inside)
    load_rows = np.empty(0, np.int64)
    if parts.loads is not None:
        load_rows = np.flatnonzero(inside[parts.loads.consumer])
    host_row = np.full(len(host), -1, np.int64)
    host_row[host_rows] = np.arange(len(host_rows))
    device_row = np.full(len(devices), -1, np.int64)
    device_row[device_rows] = len(host_rows) + np.arange(len(device_rows))
    loads = 0 if parts.loads is None else len(parts.loads.consumer)
    load_row = np.full(loads, -1, np.int64)
    load_row[load_rows] = len(host_rows) + len(device_rows) + np.arange(len(load_rows))
    present = np.unique(host.thread[host_rows]).tolist()
    ordered = sorted(present, key=lambda thread: (thread != threads.main, thread))
    streams = int(devices.lane.max(initial=-1)) + 1
    return Selection(
        host_rows,
        device_rows,
        load_rows,
        host_row,
        device_row,
        load_row,
        {thread: lane for lane, thread in enumerate(ordered)},
        len(ordered),
        len(ordered) + streams,
    )


def _selected_devices(devices: Devices, inside: NDArray[np.bool_]) -> Ints:
    """Device tasks launched in the window; those without a launch go with their neighbours."""
    linked = devices.launch >= 0
    chosen = linked.copy()
    chosen[linked] = inside[devices.launch[linked]]
    for lane in np.unique(devices.lane[chosen]):
        mine = np.flatnonzero(devices.lane == lane)
        hit = np.flatnonzero(chosen[mine])
        between = mine[hit[0] : hit[-1] + 1]
        chosen[between] |= ~linked[between]
    if not chosen.any() and not linked.any():
        chosen[:] = True
    return np.flatnonzero(chosen)


def _lanes(parts: Parts, chosen: Selection, rank: int) -> pd.DataFrame:
    devices, threads = parts.devices, parts.threads
    roles = {threads.main: "main"}
    roles.update(dict.fromkeys(threads.subordinates, "autograd"))
    roles.update(dict.fromkeys(threads.loaders, "loader"))
    ids = sorted(chosen.lane_of_thread, key=chosen.lane_of_thread.__getitem__)
    streams = chosen.loader_lane - chosen.first_stream
    _, first = np.unique(devices.lane, return_index=True)
    loaders = int(len(chosen.load) > 0)
    rows = len(ids) + streams + loaders
    return table(
        LANE_COLUMNS,
        {
            "kind": ["thread"] * len(ids) + ["stream"] * streams + ["loader"] * loaders,
            "rank": np.full(rows, rank),
            "device": np.concatenate([np.full(len(ids), -1), devices.device[first], np.full(loaders, -1)]),
            "id": np.concatenate([np.array(ids, np.int64), devices.stream[first], np.zeros(loaders, np.int64)]),
            "role": [roles.get(t, "other") for t in ids] + _stream_roles(devices) + ["loader"] * loaders,
        },
        rows,
    )


def _stream_roles(devices: Devices) -> list[str]:
    roles = []
    for lane in range(int(devices.lane.max(initial=-1)) + 1):
        here = devices.lane == lane
        busy = {k: int(devices.busy_ns[here & (devices.kind == k)].sum()) for k in np.unique(devices.kind[here])}
        most = max(busy, key=lambda kind: busy[kind])
        roles.append({"collective": "communication", "p2p": "communication", "memcpy": "copy"}.get(most, "compute"))
    return roles


def _tasks(parts: Parts, chosen: Selection, meta: TraceMeta) -> tuple[pd.DataFrame, pd.DataFrame]:
    events, host, devices, waits = parts.events, parts.host, parts.devices, parts.waits
    h, d = chosen.host, chosen.device
    launch = np.where(devices.launch[d] >= 0, devices.launch[d], 0)
    linked = devices.launch[d] >= 0
    operators, operator_of = _operators(parts, chosen)
    loads = len(chosen.load)
    names = events["name"].cat
    categories = names.categories if "batch" in names.categories or not loads else names.categories.append(pd.Index(["batch"]))
    event = np.concatenate([host.event[h], devices.event[d]])
    batch = int(categories.get_loc("batch")) if loads else -1
    name = np.concatenate([names.codes.to_numpy()[event].astype(np.int64), np.full(loads, batch)])

    def joined(on_host: Any, on_device: Any, on_load: Any) -> Any:
        return np.concatenate([on_host, on_device, np.broadcast_to(on_load, loads)])

    start = joined(host.start_ns[h], devices.start_ns[d], 0)
    duration = joined(host.end_ns[h] - host.start_ns[h], devices.end_ns[d] - devices.start_ns[d], 0)
    fill = _fill(events, devices, d, meta)
    work = joined(waits.work_ns[h], _exclusive(devices, d, fill), 0)
    if parts.loads is not None and loads:
        start[-loads:] = parts.loads.arrival_ns[chosen.load] - parts.loads.work_ns[chosen.load]
        duration[-loads:] = parts.loads.work_ns[chosen.load]
        work[-loads:] = _cyclic_loads(parts, chosen)
        work[chosen.host_row[parts.loads.consumer[chosen.load]]] = np.minimum(
            work[chosen.host_row[parts.loads.consumer[chosen.load]]], parts.loads.own_ns
        )
    step_host = np.searchsorted(parts.window.starts_ns, host.start_ns[h], side="right") - 1
    step_all = np.full(len(host), -1)
    step_all[h] = step_host
    phase, module = parts.phase, parts.module
    communication = np.isin(devices.kind[d], ["collective", "p2p"])
    device_phase = np.where(linked, phase[launch], -1)
    device_phase[communication] = PHASES.index("communication")
    operator_event = np.where(linked, host.operator[launch], -1)
    values = {
        "name": pd.Categorical.from_codes(name, categories),
        "kind": pd.Categorical(joined(_host_kinds(parts, chosen), devices.kind[d], "load")),
        "lane": joined(
            np.array([chosen.lane_of_thread[t] for t in host.thread[h].tolist()], np.int64),
            chosen.first_stream + devices.lane[d],
            chosen.loader_lane,
        ),
        "start_ns": start,
        "duration_ns": duration,
        "work_ns": work,
        "step": joined(step_host, np.where(linked, step_all[launch], -1), _load_steps(parts, chosen, step_all)),
        "phase": pd.Categorical.from_codes(joined(phase[h], device_phase, PHASES.index("load")), list(PHASES)),
        "module": pd.Categorical.from_codes(
            joined(module[h], np.where(linked, module[launch], -1), -1), parts.module_names
        ),
        "operator": joined(
            operator_of[host.operator[h]], np.where(linked, operator_of[operator_event], -1), -1
        ),
        "bytes": joined(np.full(len(h), np.nan), events["bytes"].to_numpy()[devices.event[d]], np.nan),
        "flops": np.full(chosen.rows, np.nan),
        "blocks": joined(np.full(len(h), -1), events["blocks"].to_numpy()[devices.event[d]], -1),
        "fill": joined(np.full(len(h), np.nan), fill, np.nan),
        "wait": pd.Categorical.from_codes(joined(_wait_codes(waits, h), np.zeros(len(d)), 0).astype(int), list(WAITS)),
        "wait_lane": joined(
            np.where(waits.wait_lane[h] >= 0, chosen.first_stream + waits.wait_lane[h], -1), np.full(len(d), -1), -1
        ),
        "return_ns": joined(waits.return_ns[h], np.zeros(len(d)), 0),
        "lock": joined(_locks(parts, h), np.zeros(len(d)), 0),
        "cost": pd.Categorical(
            joined(
                np.where(waits.work_ns[h] < host.end_ns[h] - host.start_ns[h], "unblocked", "recorded"),
                np.full(len(d), "recorded"),
                "recorded",
            )
        ),
    }
    return table(TASK_COLUMNS, values, chosen.rows), operators


def _wait_codes(waits: Waits, rows: Ints) -> Ints:
    """Event waits with a known task are edges; the symbolic ones keep their code."""
    code = waits.wait[rows].astype(np.int64)
    code[code == WAITS.index("event")] = 0
    return code


def _host_kinds(parts: Parts, chosen: Selection) -> NDArray[np.str_]:
    kind = np.full(len(parts.host), "host", dtype="<U6")
    kind[parts.devices.launch[parts.devices.launch >= 0]] = "launch"
    sync = matching(parts.events["name"], SYNC_CALLS)[parts.host.event] & parts.host.is_call
    kind[sync] = "sync"
    return kind[chosen.host]


def _locks(parts: Parts, rows: Ints) -> Ints:
    import re

    free = matching(parts.events["name"], re.compile(LOCK_FREE))[parts.host.event[rows]]
    takes = parts.host.is_call[rows] & ~free
    return np.where(parts.waits.holds_lock[rows], 2, takes.astype(np.int64))


def _load_steps(parts: Parts, chosen: Selection, step_all: Ints) -> Ints:
    if parts.loads is None:
        return np.empty(0, np.int64)
    return step_all[parts.loads.consumer[chosen.load]]


def _cyclic_loads(parts: Parts, chosen: Selection) -> Ints:
    """Work of each load; the first one's reaches back around the window to the last arrival."""
    assert parts.loads is not None
    work = parts.loads.work_ns[chosen.load].copy()
    arrival = parts.loads.arrival_ns[chosen.load]
    window = parts.window
    work[0] = (arrival[0] - window.start_ns) + (window.end_ns - arrival[-1])
    return work


def _fill(events: pd.DataFrame, devices: Devices, rows: Ints, meta: TraceMeta) -> NDArray[np.float64]:
    """Blocks over the blocks that fit on the device at once; NaN when either is unknown."""
    event = devices.event[rows]
    blocks = events["blocks"].to_numpy()[event].astype(np.float64)
    threads = events["block_threads"].to_numpy()[event].astype(np.float64)
    resident = events["blocks_per_sm"].to_numpy()[event].copy()
    sms = {device.index: device.sm_count for device in meta.devices if device.sm_count}
    per_device = np.array([sms.get(int(d), np.nan) for d in devices.device[rows]], np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        bound = np.clip(np.floor(MAX_THREADS_PER_SM / threads), 1, MAX_BLOCKS_PER_SM)
        resident = np.where(np.isnan(resident), bound, resident)
        return np.where((blocks > 0) & (threads > 0), blocks / (per_device * resident), np.nan)


def _exclusive(devices: Devices, rows: Ints, fill: NDArray[np.float64]) -> Ints:
    """Work of device tasks; where kernels that each fill the device overlap, the time counts once."""
    busy = devices.busy_ns[rows].copy()
    full = np.flatnonzero((devices.kind[rows] == "kernel") & (np.nan_to_num(fill, nan=0) >= 1))
    for device in np.unique(devices.device[rows[full]]):
        here = full[devices.device[rows[full]] == device]
        here = here[np.argsort(devices.start_ns[rows[here]], kind="stable")]
        start, end = devices.start_ns[rows[here]], devices.end_ns[rows[here]]
        reached = np.append(start[:1], np.maximum.accumulate(end)[:-1])
        busy[here] = np.minimum(busy[here], np.clip(end - np.maximum(start, reached), 0, None))
    return busy


def _operators(parts: Parts, chosen: Selection) -> tuple[pd.DataFrame, Ints]:
    """Operators of the window, and the operator row of each event (index −1 stays −1)."""
    events, host, window = parts.events, parts.host, parts.window
    start = events["start_ns"].to_numpy()
    inside = kind_is(events, "op") & (start >= window.start_ns) & (start < window.end_ns)
    inside |= matching(events["name"], NEXT_CALL) & (start >= window.start_ns) & (start < window.end_ns)
    rows = np.flatnonzero(inside)
    number = np.full(len(events) + 1, -1, np.int64)
    number[rows] = np.arange(len(rows))
    label = np.full(len(events), -1, np.int64)
    module = np.full(len(events), -1, np.int64)
    own = host.operator[chosen.host]
    known = own >= 0
    label[own[known]] = parts.phase[chosen.host][known]
    module[own[known]] = parts.module[chosen.host][known]
    values = {
        "name": events["name"].iloc[rows].array,
        "parent": number[host.parent[rows]],
        "step": np.searchsorted(window.starts_ns, start[rows], side="right") - 1,
        "phase": pd.Categorical.from_codes(label[rows], list(PHASES)),
        "module": pd.Categorical.from_codes(module[rows], parts.module_names),
        "shapes": events["shapes"].iloc[rows].array,
        "dtypes": events["dtypes"].iloc[rows].array,
        "flops": events["flops"].to_numpy()[rows],
        "duration_ns": events["duration_ns"].to_numpy()[rows],
    }
    return table(OPERATOR_COLUMNS, values, len(rows)), number


def _platform(parts: Parts, chosen: Selection, overhead_ns: float) -> Platform:
    waits, devices = parts.waits, parts.devices
    launch = devices.launch[(devices.launch >= 0) & (devices.kind == "kernel")]
    own = waits.return_ns[(waits.wait == OWN) & (waits.return_ns > 0)]
    return Platform(
        queue_depth=waits.queue_depth,
        launch_ns=int(np.median(waits.work_ns[launch])) if len(launch) else Platform.launch_ns,
        launch_latency_ns=parts.plain_latency,
        return_lag_ns=int(np.median(own)) if len(own) else Platform.return_lag_ns,
        gap_ns=parts.gaps,
        event_overhead_ns=overhead_ns,
        locks=bool(waits.locked.any()),
        queue_counts=dict(waits.counts),
    )


def _notes(parts: Parts, chosen: Selection) -> tuple[str, ...]:
    notes = list(parts.window.notes)
    unlinked = int((parts.devices.launch[chosen.device] < 0).sum())
    if unlinked:
        notes.append(f"{unlinked} device tasks in the window have no launch: they follow their stream only")
    if parts.devices.overlaps:
        notes.append(f"{parts.devices.overlaps} tasks overlap another of their stream: the overlap counts once")
    strange = parts.waits.counts.get("syncs that waited for something untraced", 0)
    if strange:
        notes.append(f"{strange} synchronisations waited for something untraced: their length stays work")
    if parts.loads is not None and len(chosen.load):
        notes.append("the loader was seen only by the waiting for it: it cannot get faster than recorded")
    return tuple(notes)
