"""Replays in, a Chrome trace for Perfetto out: before and after side by side.

One process per variant and rank, one track per lane, arrows for launches, waits and the critical
path, a track that shows the critical path, and how many launches are outstanding.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from foretrace.analysis.unchanged.baseline import run_experiment
from foretrace.export.tracks import (
    COUNTER,
    CRITICAL,
    CRITICAL_TRACK,
    FLOWS,
    Variant,
    as_strings,
    count_outstanding,
    find_flows,
    list_variants,
    path_slices,
)
from foretrace.util.atomic_write import write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from foretrace.graph.model import Graph
    from foretrace.transforms.scenario import ScenarioLike

_FLOW_IDS = 1 << 32  # of one variant


def export_timeline(graph: Graph, asked: ScenarioLike, path: Path) -> None:
    """Write the replay of *graph*, and of *graph* after every what-if *asked*, to *path*.

    The file appears complete or not at all.

    Raises
    ------
    TransformError
        A transform does not apply to this graph, or a parameter is out of range.
    OSError
        The file cannot be written.
    """
    export_chrome(list_variants(run_experiment(graph, asked)), path)


def export_chrome(variants: Sequence[Variant], path: Path) -> None:
    """Write *variants* to *path*, completely or not at all."""
    write_events((event for variant in variants for event in trace_events(variant)), path)


def write_events(events: Iterator[dict[str, Any]], path: Path) -> None:
    """Write *events* as one Chrome trace, an event per line."""
    lines = ",\n".join(json.dumps(event, separators=(",", ":")) for event in events)
    text = f'{{"displayTimeUnit":"ms","traceEvents":[\n{lines}\n]}}\n'
    write_atomically(path, text.encode())


def trace_events(variant: Variant) -> Iterator[dict[str, Any]]:
    """Yield every event of *variant*: names of processes and tracks, slices, arrows, path."""
    for number, name in variant.process_names.items():
        where = {"ph": "M", "pid": number, "tid": 0}
        yield {**where, "name": "process_name", "args": {"name": name}}
    for track, (lane, name) in variant.track_names.items():
        where = {"ph": "M", "pid": int(variant.process[lane]), "tid": track}
        yield {**where, "name": "thread_name", "args": {"name": name}}
        yield {**where, "name": "thread_sort_index", "args": {"sort_index": lane}}
    yield from _slices(variant)
    yield from _arrows(variant)
    yield from _counters(variant)
    yield from _critical_path(variant)


def _slices(variant: Variant) -> Iterator[dict[str, Any]]:
    tasks, timeline = variant.graph.tasks, variant.timeline
    columns = (
        *(as_strings(tasks[name]) for name in ("name", "kind", "phase", "module", "cost")),
        variant.process[tasks["lane"].to_numpy()].tolist(),
        variant.tracks.tolist(),
        (timeline.start_ns / 1_000).tolist(),
        ((timeline.end_ns - timeline.start_ns) / 1_000).tolist(),
    )
    for name, kind, phase, module, cost, pid, tid, start, length in zip(*columns, strict=True):
        facts = {"phase": phase, "module": module, "cost": cost}
        yield {
            "ph": "X",
            "name": name or "?",
            "cat": kind,
            "pid": pid,
            "tid": tid,
            "ts": start,
            "dur": length,
            "args": {key: value for key, value in facts.items() if value is not None},
        }


def _arrows(variant: Variant) -> Iterator[dict[str, Any]]:
    """Yield the two ends of every arrow; an end of a slice lies just inside of it."""
    arrows, timeline = find_flows(variant), variant.timeline
    process = variant.process[variant.graph.tasks["lane"].to_numpy()]
    columns = (arrows.kind, arrows.src, arrows.src_at_end, arrows.dst, arrows.dst_at_end)
    for row, (kind, src, src_at_end, dst, dst_at_end) in enumerate(
        zip(*(column.tolist() for column in columns), strict=True)
    ):
        name = FLOWS[kind]
        common = {"name": name, "cat": name, "id": variant.number * _FLOW_IDS + row}
        for phase, task, at_end in (("s", src, src_at_end), ("f", dst, dst_at_end)):
            start, end = int(timeline.start_ns[task]), int(timeline.end_ns[task])
            yield {
                **common,
                "ph": phase,
                "pid": int(process[task]),
                "tid": int(variant.tracks[task]),
                "ts": (max(start, end - 1) if at_end else start) / 1_000,
                **({"bp": "e"} if phase == "f" else {}),
            }


def _counters(variant: Variant) -> Iterator[dict[str, Any]]:
    for process, (moments, counts) in count_outstanding(variant).items():
        common = {"ph": "C", "pid": process, "name": COUNTER}
        for moment, count in zip(moments, counts, strict=True):
            yield {**common, "ts": moment / 1_000, "args": {"launches": count}}


def _critical_path(variant: Variant) -> Iterator[dict[str, Any]]:
    where = {"pid": variant.first_process, "tid": CRITICAL_TRACK}
    yield {"ph": "M", **where, "name": "thread_name", "args": {"name": CRITICAL}}
    for begin, end, name, why in path_slices(variant):
        yield {
            "ph": "X",
            **where,
            "name": name,
            "cat": CRITICAL,
            "ts": begin / 1_000,
            "dur": (end - begin) / 1_000,
            "args": {"why": why},
        }
