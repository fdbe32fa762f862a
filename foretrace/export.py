"""Graph and scenario in, a timeline file for Perfetto out, before and after side by side.

The format is Chrome's trace JSON: one process per variant and rank, one track per lane, an
arrow from every launch to what it launched, and a track that shows the critical path.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from foretrace.atomic import write_atomically
from foretrace.replay import replay
from foretrace.transforms import apply

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pandas as pd

    from foretrace.graph.model import Graph
    from foretrace.replay.timeline import Timeline
    from foretrace.transforms.scenario import Scenario

CRITICAL_TRACK = 10_000_000
"""Track id of the critical path; lanes count from 1, their overflow tracks from 100,000."""

_OVERFLOW = 100_000


@dataclass(frozen=True)
class Variant:
    """One replayed graph to show; *first_process* keeps the process ids of variants apart."""

    label: str
    graph: Graph
    timeline: Timeline
    first_process: int
    first_flow: int


def export(graph: Graph, scenario: Scenario, path: Path) -> None:
    """Write the replay of *graph*, and of *graph* after *scenario*, to *path*.

    The file appears complete or not at all.
    """
    variants = [Variant("before", graph, replay(graph), 1, 0)]
    if scenario:
        changed = apply(graph, scenario)
        first = 1 + len(graph.meta.ranks)
        variants.append(Variant("after", changed, replay(changed), first, len(graph.edges)))
    write_events((event for variant in variants for event in trace_events(variant)), path)


def write_events(events: Iterator[dict[str, Any]], path: Path) -> None:
    """Write *events* as one Chrome trace, an event per line."""
    lines = ",\n".join(json.dumps(event, separators=(",", ":")) for event in events)
    text = f'{{"displayTimeUnit":"ms","traceEvents":[\n{lines}\n]}}\n'
    write_atomically(path, text.encode())


def trace_events(variant: Variant) -> Iterator[dict[str, Any]]:
    """Yield every event of *variant*: names of processes and tracks, slices, arrows, path."""
    ranks = variant.graph.lanes["rank"].to_numpy()
    process = variant.first_process + np.unique(ranks, return_inverse=True)[1]
    for number, rank in sorted(set(zip(process.tolist(), ranks.tolist(), strict=True))):
        yield _process_name(number, f"{variant.label}, rank {rank}")
    tracks = _tracks(variant)
    yield from _track_names(variant, process, tracks)
    yield from _slices(variant, process, tracks)
    yield from _arrows(variant, process, tracks)
    yield from _critical_path(variant)


def _process_name(process: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": process, "tid": 0, "name": "process_name", "args": {"name": name}}


def _tracks(variant: Variant) -> np.ndarray:
    """Return the track of every task: its lane's, or an overflow track where slices overlap.

    Perfetto drops a slice that begins inside another one of its track and ends outside it.
    """
    lane = variant.graph.tasks["lane"].to_numpy()
    start, end = variant.timeline.start_ns, variant.timeline.end_ns
    track = lane + 1
    order = np.lexsort((end, start, lane))
    same = lane[order][1:] == lane[order][:-1]
    clash = same & (start[order][1:] < end[order][:-1])
    for crowded in np.unique(lane[order][1:][clash]):
        rows = order[lane[order] == crowded]
        track[rows] = crowded + 1 + _OVERFLOW * _levels(start[rows], end[rows])
    return track


def _levels(start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Return the lowest level on which each interval, sorted by start, overlaps none before it."""
    free_from: list[int] = []
    levels = np.zeros(len(start), np.int64)
    for row, (begin, finish) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        level = next((i for i, free in enumerate(free_from) if free <= begin), len(free_from))
        if level == len(free_from):
            free_from.append(0)
        free_from[level] = finish
        levels[row] = level
    return levels


def _track_names(
    variant: Variant, process: np.ndarray, tracks: np.ndarray
) -> Iterator[dict[str, Any]]:
    lanes = variant.graph.lanes
    for track in np.unique(tracks).tolist():
        level, lane = divmod(track - 1, _OVERFLOW)
        row = lanes.iloc[lane]
        role = f", {row['role']}" if isinstance(row["role"], str) else ""
        name = f"{row['kind']} {row['id']}{role}" + (f" (overlap {level})" if level else "")
        where = {"ph": "M", "pid": int(process[lane]), "tid": track}
        yield {**where, "name": "thread_name", "args": {"name": name}}
        yield {**where, "name": "thread_sort_index", "args": {"sort_index": lane}}


def _slices(variant: Variant, process: np.ndarray, tracks: np.ndarray) -> Iterator[dict[str, Any]]:
    tasks, timeline = variant.graph.tasks, variant.timeline
    columns = (
        _strings(tasks["name"]),
        _strings(tasks["kind"]),
        _strings(tasks["phase"]),
        _strings(tasks["module"]),
        _strings(tasks["cost"]),
        process[tasks["lane"].to_numpy()].tolist(),
        tracks.tolist(),
        (timeline.start_ns / 1_000).tolist(),
        ((timeline.end_ns - timeline.start_ns) / 1_000).tolist(),
    )
    for name, kind, phase, module, cost, pid, tid, start, length in zip(*columns, strict=True):
        known = {"phase": phase, "module": module, "cost": cost}
        yield {
            "ph": "X",
            "name": name or "?",
            "cat": kind,
            "pid": pid,
            "tid": tid,
            "ts": start,
            "dur": length,
            "args": {key: value for key, value in known.items() if value is not None},
        }


def _strings(column: pd.Series) -> list[str | None]:
    """Return the values of a categorical column; missing ones as ``None``."""
    names = [*map(str, column.cat.categories), None]
    return [names[code] for code in column.cat.codes.tolist()]


def _arrows(variant: Variant, process: np.ndarray, tracks: np.ndarray) -> Iterator[dict[str, Any]]:
    """Yield the two ends of an arrow for every launch within the window."""
    edges, timeline = variant.graph.edges, variant.timeline
    lane = variant.graph.tasks["lane"].to_numpy()
    where = ((edges["kind"] == "launch") & (edges["shift"] == 0)).to_numpy()
    rows = np.flatnonzero(where)
    ends = zip(edges["src"].to_numpy()[rows], edges["dst"].to_numpy()[rows], rows, strict=True)
    for src, dst, row in ends:
        common = {"name": "launch", "cat": "launch", "id": int(variant.first_flow + row)}
        for phase, task in (("s", src), ("f", dst)):
            yield {
                **common,
                "ph": phase,
                "pid": int(process[lane[task]]),
                "tid": int(tracks[task]),
                "ts": float(timeline.start_ns[task] / 1_000),
                **({"bp": "e"} if phase == "f" else {}),
            }


def _critical_path(variant: Variant) -> Iterator[dict[str, Any]]:
    where = {"pid": variant.first_process, "tid": CRITICAL_TRACK}
    yield {"ph": "M", **where, "name": "thread_name", "args": {"name": "critical path"}}
    names = _strings(variant.graph.tasks["name"])
    path = variant.timeline.critical_path.sort_values(["from_ns", "to_ns"], kind="stable")
    for segment in path.itertuples():
        yield {
            "ph": "X",
            **where,
            "name": names[segment.task] or "?",
            "cat": "critical path",
            "ts": segment.from_ns / 1_000,
            "dur": (segment.to_ns - segment.from_ns) / 1_000,
            "args": {"why": str(segment.why)},
        }
