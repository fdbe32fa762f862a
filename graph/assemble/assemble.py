"""Everything inferred about one rank in, a graph of its window out.

Edges that leave the window at its end come back at its beginning, one repetition later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from foretrace.graph.assemble.doubt_graphs import doubt_graphs
from foretrace.graph.assemble.doubt_waits import doubt_waits
from foretrace.graph.assemble.edge_table import make_edge_table
from foretrace.graph.assemble.lane_table import make_lane_table, make_operator_table
from foretrace.graph.assemble.optimizer_updates import find_updates
from foretrace.graph.assemble.profiler_overhead import fit_overhead
from foretrace.graph.assemble.selection import Selection, select_window
from foretrace.graph.assemble.task_table import make_task_table
from foretrace.graph.infer.steps.missing_work import doubt_file, doubt_missing_work
from foretrace.graph.infer.tasks.api_calls import OWN
from foretrace.graph.infer.tasks.device_tasks import KERNEL
from foretrace.graph.model import Graph, Platform, Rules
from foretrace.graph.state import JobState, ProcessGroup

if TYPE_CHECKING:
    from foretrace.graph.infer.rank import InferredRank
    from foretrace.tracer.trace import TraceMeta


def assemble(rank: InferredRank, meta: TraceMeta, rules: Rules) -> Graph:
    """Put the window's tasks, edges, lanes and operators into tables."""
    chosen = select_window(rank)
    operators, operator_of = make_operator_table(rank, chosen)
    tasks = make_task_table(rank, chosen, meta, operator_of)
    overhead = fit_overhead(rank, chosen, meta, rules)
    work = tasks["work_ns"].to_numpy().copy()
    on_host = slice(len(chosen.host))
    work[on_host] = np.clip(work[on_host] - overhead.of(chosen.host), 0, None).astype(np.int64)
    tasks["work_ns"] = work
    window = rank.window
    return Graph(
        tasks=tasks,
        edges=make_edge_table(rank, chosen, overhead),
        lanes=make_lane_table(rank, chosen),
        operators=operators,
        meta=meta,
        steps=window.steps,
        measured_step_ns=window.measured_ns,
        step_samples_ns=window.samples_ns,
        rules=rules,
        platform=_estimate_platform(rank, overhead.usual_ns),
        notes=_write_notes(rank, chosen),
        state=JobState(
            host_period_ns=window.host_ns,
            steps_from=_say_marker(rank),
            process_groups=_process_groups(rank, chosen) if len(meta.ranks) > 1 else None,
            loader=rank.workers.seen if rank.workers else None,
            untraced_call_ns=float(rank.waits.untraced_ns[chosen.host].sum() / window.steps),
            assumed_launches=rank.waits.assumed,
            gap_range=rank.gap_range,
            period_spread=rank.devices.period_spread,
            allocations=rank.allocations,
            updates=find_updates(rank, operator_of, operators["step"].to_numpy()),
            doubts=(
                *doubt_file(meta),
                *window.doubts,
                *(rank.workers.doubts if rank.workers else ()),
                *rank.waits.doubts,
                *doubt_waits(rank, chosen),
                *doubt_graphs(rank, chosen),
                *doubt_missing_work(rank.events, rank.host, rank.devices, window),
            ),
        ),
    )


def _say_marker(rank: InferredRank) -> str | None:
    """Return what begins a step: the range's name, or the pattern that picked it."""
    if rank.steps is None:
        return None
    return rank.steps.source if rank.steps.source.startswith("pattern") else rank.steps.name


def _process_groups(rank: InferredRank, chosen: Selection) -> dict[int, ProcessGroup]:
    """Return the process group of each collective, by row; of those that name one."""
    event = rank.devices.event[chosen.device]
    group = rank.events.category("group", event)
    size = rank.events.column("group_size")[event]
    row = chosen.device_row[chosen.device]
    return {
        int(row[at]): ProcessGroup(str(group[at]), int(size[at]))
        for at in np.flatnonzero(group.codes >= 0).tolist()
    }


def _estimate_platform(rank: InferredRank, overhead_ns: float) -> Platform:
    waits, devices = rank.waits, rank.devices
    launch = devices.launch[(devices.launch >= 0) & (devices.kind == KERNEL)]
    own = waits.return_ns[(waits.wait == OWN) & (waits.return_ns > 0)]
    return Platform(
        queue_depth=waits.queue_depth,
        launch_ns=int(np.median(waits.work_ns[launch])) if len(launch) else Platform.launch_ns,
        launch_latency_ns=rank.plain_latency,
        return_lag_ns=int(np.median(own)) if len(own) else Platform.return_lag_ns,
        gap_ns=rank.gaps,
        event_overhead_ns=overhead_ns,
        locks=bool(waits.locked.any()),
        queue_counts=dict(waits.counts),
    )


def _write_notes(rank: InferredRank, chosen: Selection) -> tuple[str, ...]:
    notes = list(rank.window.notes)
    unlinked = int((rank.devices.launch[chosen.device] < 0).sum())
    if unlinked:
        notes.append(
            f"{unlinked} device tasks in the window have no launch: they follow their stream only"
        )
    overlaps = rank.devices.overlaps
    if overlaps:
        notes.append(f"{overlaps} tasks overlap another of their stream: the overlap counts once")
    strange = rank.waits.counts.get("syncs that waited for something untraced", 0)
    if strange:
        notes.append(
            f"{strange} synchronisation{'s' * (strange > 1)} waited for something untraced: "
            f"{'their' if strange > 1 else 'its'} length stays work"
        )
    if chosen.dropped_threads:
        notes.append(
            f"{chosen.dropped_threads} host threads neither train, load nor launch: left out"
        )
    if len(chosen.load):
        notes.append(
            "the loader was seen only by the waiting for it: it cannot get faster than recorded"
        )
    if rank.workers is not None:
        notes.extend(rank.workers.notes)
    return tuple(notes)
