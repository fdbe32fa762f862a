"""Replays in, what a timeline viewer shows of them out: tracks, flows between slices, a counter.

Every file format that shows timelines is written from these.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from foretrace.transforms.edit.columns import is_in

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from foretrace.analysis.unchanged.baseline import Experiment
    from foretrace.graph.model import Graph
    from foretrace.replaying.timeline import Timeline

    Ints = NDArray[np.int64]
    Mask = NDArray[np.bool_]

CRITICAL_TRACK = 10_000_000
"""Track id of the critical path; lanes count from 1, their overflow tracks from 100,000."""
OVERFLOW = 100_000
LAUNCH, SYNC, CRITICAL = "launch", "sync", "critical path"
FLOWS = (LAUNCH, SYNC, CRITICAL)
"""Kinds of flows: from a call to what it launched, from device work to the call that waits for it,
from task to task along the critical path."""
COUNTER = "launches outstanding"


@dataclass(frozen=True)
class Variant:
    """One replayed graph to show; *number* keeps the ids of variants apart."""

    label: str
    timeline: Timeline
    number: int
    first_process: int

    @property
    def graph(self) -> Graph:
        """The graph that was replayed."""
        return self.timeline.graph

    @cached_property
    def process(self) -> Ints:
        """Process id of every lane: one per rank."""
        ranks = self.graph.lanes["rank"].to_numpy()
        return self.first_process + np.unique(ranks, return_inverse=True)[1]

    @property
    def process_names(self) -> dict[int, str]:
        """Name of each process."""
        ranks = self.graph.lanes["rank"].tolist()
        pairs = sorted(set(zip(self.process.tolist(), ranks, strict=True)))
        return {number: f"{self.label}, rank {rank}" for number, rank in pairs}

    @cached_property
    def tracks(self) -> Ints:
        """Track of every task: its lane's, or an overflow track where slices overlap.

        Perfetto drops a slice that begins inside another one of its track and ends outside it.
        """
        lane = self.graph.tasks["lane"].to_numpy()
        start, end = self.timeline.start_ns, self.timeline.end_ns
        track = lane.astype(np.int64) + 1
        order = np.lexsort((end, start, lane))
        same = lane[order][1:] == lane[order][:-1]
        clash = same & (start[order][1:] < end[order][:-1])
        for crowded in np.unique(lane[order][1:][clash]):
            rows = order[lane[order] == crowded]
            track[rows] = crowded + 1 + OVERFLOW * assign_levels(start[rows], end[rows])
        return track

    @property
    def track_names(self) -> dict[int, tuple[int, str]]:
        """Lane and name of every track that has a slice."""
        lanes = self.graph.lanes
        names = {}
        for track in np.unique(self.tracks).tolist():
            level, lane = divmod(track - 1, OVERFLOW)
            row = lanes.iloc[lane]
            role = f", {row['role']}" if isinstance(row["role"], str) else ""
            more = f" (overlap {level})" if level else ""
            names[track] = (lane, f"{row['kind']} {row['id']}{role}{more}")
        return names


@dataclass(frozen=True)
class Flows:
    """Arrows between slices: rows of tasks, and at which end of its slice each end is tied.

    An arrow that would point back in time between starts (a call waits for work that began later)
    is tied to the ends. ``kind`` is a position in `FLOWS`.
    """

    kind: Ints
    src: Ints
    dst: Ints
    src_at_end: Mask
    dst_at_end: Mask


def list_variants(experiment: Experiment) -> list[Variant]:
    """Return the replays before and after a scenario; without a scenario, the one there is."""
    before, after = experiment.baseline.timeline, experiment.after
    shown = [Variant("before", before, 0, 1)]
    if experiment.scenario:
        shown.append(Variant("after", after, 1, 1 + before.graph.lanes["rank"].nunique()))
    return shown


def assign_levels(start: Ints, end: Ints) -> Ints:
    """Return the lowest level on which each interval, sorted by start, overlaps none before it."""
    free_from: list[int] = []
    lowest = np.zeros(len(start), np.int64)
    for row, (begin, finish) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        level = next((i for i, free in enumerate(free_from) if free <= begin), len(free_from))
        if level == len(free_from):
            free_from.append(0)
        free_from[level] = finish
        lowest[row] = level
    return lowest


def find_flows(variant: Variant) -> Flows:
    """Return every arrow of *variant* between tasks of the repetition that is shown."""
    edges = variant.graph.edges
    inside = (edges["shift"] == 0).to_numpy()
    src, dst = edges["src"].to_numpy(), edges["dst"].to_numpy()
    launch, sync = (np.flatnonzero(inside & is_in(edges["kind"], k)) for k in ("launch", "return"))
    path = _on_path(variant.timeline)
    begin = np.concatenate((src[launch], src[sync], path[:-1])).astype(np.int64)
    finish = np.concatenate((dst[launch], dst[sync], path[1:])).astype(np.int64)
    kind = np.repeat(np.arange(len(FLOWS)), [len(launch), len(sync), max(len(path) - 1, 0)])
    start, end = variant.timeline.start_ns, variant.timeline.end_ns
    forward = start[begin] <= start[finish]
    return Flows(kind, begin, finish, ~forward & (end[begin] <= end[finish]), ~forward)


def _on_path(timeline: Timeline) -> Ints:
    """Return the tasks that work on the critical path within the repetition shown, in order."""
    path = timeline.critical_path
    path = path[is_in(path["why"], "work")].sort_values(["from_ns", "to_ns"], kind="stable")
    task = path["task"].to_numpy()
    is_shown = timeline.start_ns[task] <= path["from_ns"].to_numpy()
    is_shown &= path["to_ns"].to_numpy() <= timeline.end_ns[task]
    task = task[is_shown].astype(np.int64)
    return task[np.append(True, task[1:] != task[:-1])] if len(task) else task


def count_outstanding(variant: Variant) -> dict[int, tuple[list[int], list[int]]]:
    """Return per process when the number of launches that have not started changes, and to what.

    Launches of an earlier repetition that start in this one count from the beginning.
    """
    edges, timeline = variant.graph.edges, variant.timeline
    edges = edges[is_in(edges["kind"], "launch")]
    src, dst = edges["src"].to_numpy(), edges["dst"].to_numpy()
    owner = variant.process[variant.graph.tasks["lane"].to_numpy()[src]]
    counters = {}
    for process in np.unique(owner).tolist():
        own = owner == process
        moments = np.concatenate((timeline.start_ns[src[own]], timeline.start_ns[dst[own]]))
        change = np.repeat([1, -1], int(own.sum()))
        order = np.argsort(moments, kind="stable")
        counts = int(edges["shift"].to_numpy()[own].sum()) + np.cumsum(change[order])
        last = np.append(np.diff(moments[order]) > 0, True)
        counters[process] = (moments[order][last].tolist(), counts[last].tolist())
    return counters


def path_slices(variant: Variant) -> list[tuple[int, int, str, str]]:
    """Return the segments of the critical path that have a length: start, end, name, reason."""
    path = variant.timeline.critical_path
    path = path[path["to_ns"] > path["from_ns"]].sort_values(["from_ns", "to_ns"], kind="stable")
    names = as_strings(variant.graph.tasks["name"])
    columns = (path[name].tolist() for name in ("from_ns", "to_ns", "task", "why"))
    return [
        (begin, end, names[task] or "?", str(why))
        for begin, end, task, why in zip(*columns, strict=True)
    ]


def as_strings(column: pd.Series) -> list[str | None]:
    """Return the values of a categorical column; missing ones as ``None``."""
    names = [*map(str, column.cat.categories), None]
    return [names[code] for code in column.cat.codes.tolist()]
