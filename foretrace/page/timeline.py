"""A timeline in, what a page draws of it out: every lane as blocks, few enough to send and to see.

Neighbours that are too short to be seen side by side become one block that says how many tasks it
stands for; tasks that are long enough stay as they are.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from foretrace.analysis.explain import CAUSES, WAIT_CAUSES, task_causes
from foretrace.graph.views import lane_names
from foretrace.report.number_format import NS_PER_MS
from foretrace.transforms.edit.columns import is_in
from foretrace.util.short_name import short

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from foretrace.replaying.timeline import Timeline

    Ints = NDArray[np.int64]

MOST_BLOCKS = 16_000
"""Blocks of one timeline; a screen is some 2,000 pixels wide, so that ten zooms stay sharp."""
MOST_LANES = 16
NAME_WIDTH = 90
HOST_KINDS = ("launch", "sync")
"""Kinds of host tasks that are told apart from other host work."""
_WAITS = tuple(dict.fromkeys(f"waiting: {cause}" for cause in WAIT_CAUSES.values()))
SORTS = (*CAUSES, *HOST_KINDS, *_WAITS)
"""What a block can be: work by its cause, or a wait on the critical path."""
_WIDEST = 63  # bits of a time


@dataclass(frozen=True)
class Spans:
    """Intervals on rows of the picture, sorted by (row, start); times in ns.

    ``name`` is a position in a list of names, ``sort`` one in `SORTS`; a span stands for ``count``
    tasks that are busy for ``busy_ns`` of its length.
    """

    row: Ints
    start_ns: Ints
    end_ns: Ints
    name: Ints
    sort: Ints
    count: Ints
    busy_ns: Ints


def timeline_data(timeline: Timeline, label: str, most: int = MOST_BLOCKS) -> dict[str, Any]:
    """Return the rows of the picture, and the names that their blocks use.

    A block is six numbers: start and length in ns, tasks it stands for, name (position in
    ``names``), sort (position in `SORTS`), busy ns. The first row is the critical path.
    """
    graph = timeline.graph
    shown, sorts = _busiest_lanes(timeline), _sorts(timeline)
    every = _join(_path_spans(timeline, sorts), _task_spans(timeline, sorts, shown))
    spans = merge(every, most)
    used, name = np.unique(spans.name, return_inverse=True)
    names = graph.tasks["name"].array.categories
    columns = (spans.start_ns, spans.end_ns - spans.start_ns, spans.count, name, spans.sort)
    blocks = np.stack([*columns, spans.busy_ns], axis=1)
    ends = np.searchsorted(spans.row, np.arange(len(shown) + 2))
    rows = [blocks[ends[at] : ends[at + 1]].ravel().tolist() for at in range(len(shown) + 1)]
    return {
        "label": label,
        "span_ns": _period(timeline),
        "steps": graph.steps,
        "step_ms": timeline.step_ns / NS_PER_MS,
        "names": [short(str(names[code]), NAME_WIDTH) if code >= 0 else "?" for code in used],
        "rows": [
            {"name": "critical path", "blocks": rows[0]},
            *_lane_rows(timeline, shown, rows[1:]),
        ],
        "tasks": len(graph.tasks),
        "hidden_lanes": int((_tasks_by_lane(timeline) > 0).sum()) - len(shown),
    }


def merge(spans: Spans, most: int) -> Spans:
    """Return at most *most* spans, and one per row at least: the shortest neighbours are joined.

    Times are cut into bins of the smallest power of two that suffices; consecutive spans of a row
    that are shorter than a bin and begin in the same one become one, named for the longest.
    """
    if len(spans.row) <= most:
        return spans
    bits = bisect_left(
        range(_WIDEST), True, key=lambda bits: int(_begins(spans, bits).sum()) <= most
    )
    begins = _begins(spans, min(bits, _WIDEST - 1))
    first, group = np.flatnonzero(begins), np.cumsum(begins) - 1
    order = np.lexsort((spans.busy_ns, group))
    longest = order[np.append(first[1:], len(order)) - 1]
    return Spans(
        row=spans.row[first],
        start_ns=spans.start_ns[first],
        end_ns=np.maximum.reduceat(spans.end_ns, first),
        name=spans.name[longest],
        sort=spans.sort[longest],
        count=np.add.reduceat(spans.count, first),
        busy_ns=np.add.reduceat(spans.busy_ns, first),
    )


def _begins(spans: Spans, bits: int) -> NDArray[np.bool_]:
    """Tell which spans begin a block where times are cut into bins of 2 ** *bits* ns."""
    is_long = spans.end_ns - spans.start_ns >= 1 << bits
    bins = spans.start_ns >> bits
    begins = np.ones(len(is_long), np.bool_)
    begins[1:] = is_long[1:] | is_long[:-1]
    begins[1:] |= (spans.row[1:] != spans.row[:-1]) | (bins[1:] != bins[:-1])
    return begins


def _task_spans(timeline: Timeline, sorts: Ints, shown: Sequence[int]) -> Spans:
    """Return the tasks of the lanes *shown*, on rows from 1."""
    tasks = timeline.graph.tasks
    row_of = np.zeros(len(timeline.graph.lanes), np.int64)
    row_of[list(shown)] = np.arange(1, len(shown) + 1)
    row = row_of[tasks["lane"].to_numpy()]
    task = np.flatnonzero(row)
    start, end = timeline.start_ns[task], timeline.end_ns[task]
    return _spans(timeline, row[task], start, end, task, sorts[task])


def _path_spans(timeline: Timeline, sorts: Ints) -> Spans:
    """Return one period of the critical path, on row 0."""
    path = timeline.critical_path
    until = path["from_ns"].min() + _period(timeline)
    path = path[(path["from_ns"] < until) & (path["to_ns"] > path["from_ns"])]
    task = path["task"].to_numpy()
    why = path["why"].array
    waits = np.array([_wait_sort(str(reason)) for reason in why.categories])
    sort = np.where(is_in(path["why"], "work"), sorts[task], waits[why.codes])
    start, end = path["from_ns"].to_numpy(), path["to_ns"].to_numpy()
    return _spans(timeline, np.zeros_like(start), start, end, task, sort)


def _spans(
    timeline: Timeline, row: Ints, start_ns: Ints, end_ns: Ints, task: Ints, sort: Ints
) -> Spans:
    """Return intervals of the steady state as they lie within one period, sorted.

    What runs over the end of the period runs at its beginning too, one repetition earlier.
    """
    period = _period(timeline)
    start = start_ns % period
    end = start + np.minimum(end_ns - start_ns, period)
    over = np.flatnonzero(end > period)
    which = np.concatenate((np.arange(len(row)), over))
    start = np.concatenate((start, np.zeros_like(over)))
    end = np.concatenate((np.minimum(end, period), end[over] - period))
    order = np.lexsort((end, start, row[which]))
    which, start, end = which[order], start[order], end[order]
    name = timeline.graph.tasks["name"].array.codes.astype(np.int64)[task[which]]
    return Spans(row[which], start, end, name, sort[which], np.ones_like(start), end - start)


def _period(timeline: Timeline) -> int:
    return max(1, round(timeline.period_ns))


def _join(first: Spans, second: Spans) -> Spans:
    pairs = zip(vars(first).values(), vars(second).values(), strict=True)
    return Spans(*(np.concatenate(pair) for pair in pairs))


def _sorts(timeline: Timeline) -> Ints:
    """Return per task what it is: its cause, or its kind where the host launches or waits."""
    sorts = task_causes(timeline.graph).astype(np.int64)
    for kind in HOST_KINDS:
        sorts[is_in(timeline.graph.tasks["kind"], kind)] = SORTS.index(kind)
    return sorts


def _wait_sort(reason: str) -> int:
    cause = WAIT_CAUSES.get(reason)
    return -1 if cause is None else SORTS.index(f"waiting: {cause}")


def _tasks_by_lane(timeline: Timeline) -> Ints:
    graph = timeline.graph
    return np.bincount(graph.tasks["lane"].to_numpy(), minlength=len(graph.lanes))


def _busiest_lanes(timeline: Timeline) -> list[int]:
    """Return the lanes that are drawn, in their own order."""
    lanes = timeline.lanes
    taken = (lanes["work_ns"] + lanes["waiting_ns"]).to_numpy()
    taken = np.where(_tasks_by_lane(timeline) > 0, taken, -1)
    busiest = np.argsort(-taken, kind="stable")[:MOST_LANES]
    return sorted(int(lane) for lane in busiest if taken[lane] >= 0)


def _lane_rows(
    timeline: Timeline, shown: Sequence[int], blocks: Sequence[list[int]]
) -> list[dict[str, Any]]:
    """Return name, blocks and times of each lane; times in ms of a step."""
    names, tasks = lane_names(timeline.graph), _tasks_by_lane(timeline)
    per_step = timeline.lanes / (NS_PER_MS * timeline.graph.steps)
    return [
        {
            "name": str(names[lane]),
            "blocks": drawn,
            "tasks": int(tasks[lane]),
            **{
                f"{what}_ms": round(float(per_step.at[lane, f"{what}_ns"]), 6)
                for what in ("work", "waiting", "idle")
            },
        }
        for lane, drawn in zip(shown, blocks, strict=True)
    ]
