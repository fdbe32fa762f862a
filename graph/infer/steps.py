"""Where the iterations of a recording begin.

In: the host ranges of one rank. Out: step starts on the host, and which annotation said so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foretrace.errors import GraphError
from foretrace.graph.infer.events import match_names

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foretrace.graph.infer.events import Events

    Ints = NDArray[np.int64]

_DIGITS = re.compile(r"\d+")
_MARKERS = (
    ("ProfilerStep", re.compile(r"^ProfilerStep#")),
    (
        "step range",
        re.compile(r"^\W*(train[ _]?)?(step|iteration|iter|batch)\W*#?\W*$", re.IGNORECASE),
    ),
    ("forward range", re.compile(r"^\W*(forward|fwd)\W*$", re.IGNORECASE)),
    ("Optimizer.step", re.compile(r"^Optimizer\.step")),
    ("Optimizer.zero_grad", re.compile(r"^Optimizer\.zero_grad")),
    ("repeated range", re.compile(r"#")),
)
"""Tried in this order, on names with each number replaced by #: their *shape*."""
COVERAGE = 0.5
"""Of the recording, for a repeated range that does not call itself a step."""
LEAST_MATCHES = 2


@dataclass(frozen=True)
class StepBounds:
    """Step ``i`` spans ``starts_ns[i]`` to ``starts_ns[i + 1]`` on thread ``thread``.

    ``rows`` are the markers' rows in the rank's events.
    With one marker only, the second boundary is that marker's end and ``single`` is true.
    """

    starts_ns: Ints
    rows: Ints
    thread: int
    source: str
    single: bool = False

    @property
    def count(self) -> int:
        """Number of whole steps."""
        return len(self.starts_ns) - 1


def find_steps(events: Events, pattern: str | None = None) -> StepBounds | None:
    """Find step boundaries among the host ranges of one rank; ``None`` when there are none.

    Old recordings keep annotations among the operators, so both are looked at.

    Parameters
    ----------
    pattern
        Regular expression of the range that begins a step, instead of guessing.

    Raises
    ------
    GraphError
        When *pattern* is not a regular expression or matches fewer than two ranges.
    """
    ranges = np.flatnonzero(events.is_kind("annotation", "op") & (events.thread != -1))
    if pattern is not None:
        return _find_by_pattern(events, ranges, pattern)
    used = np.flatnonzero(np.bincount(events.name[ranges] + 1, minlength=1)[1:])
    shapes = {int(code): _DIGITS.sub("#", events.names[code]) for code in used}
    for source, marker in _MARKERS:
        wanted = {code: shape for code, shape in shapes.items() if marker.search(shape)}
        markers = _find_candidates(events, ranges, wanted)
        if markers is not None and (source != "repeated range" or _covers(events, markers, ranges)):
            return _make_steps(events, markers, source)
    return None


def _covers(events: Events, rows: Ints, ranges: Ints) -> bool:
    """Tell whether *rows*, without what they share, cover most of the time that is annotated."""
    starts, ends = events.start_ns, events.start_ns + events.duration_ns
    reached = np.append([0], np.maximum.accumulate(ends[rows])[:-1])
    covered = np.clip(ends[rows] - np.maximum(starts[rows], reached), 0, None).sum()
    return bool(covered > COVERAGE * (ends[ranges].max() - starts[ranges].min()))


def _find_by_pattern(events: Events, ranges: Ints, pattern: str) -> StepBounds:
    try:
        hit = match_names(events.names, re.compile(pattern))[events.name[ranges]]
    except (re.error, OverflowError) as error:
        raise GraphError(f"step pattern {pattern!r} is no regular expression: {error}") from None
    if hit.sum() < LEAST_MATCHES:
        raise GraphError(
            f"step pattern {pattern!r} matches {hit.sum()} ranges, at least 2 are needed"
        )
    return _make_steps(events, _keep_one_thread(events, ranges[hit]), f"pattern {pattern!r}")


def _find_candidates(events: Events, ranges: Ints, wanted: dict[int, str]) -> Ints | None:
    """Return the rows of the longest-lasting repeated shape, ``None`` without any."""
    if not wanted:
        return None
    distinct = sorted(set(wanted.values()))
    shape_of = np.full(len(events.names) + 1, -1, np.int64)
    for code, shape in wanted.items():
        shape_of[code] = distinct.index(shape)
    rows = ranges[shape_of[events.name[ranges]] >= 0]
    number = shape_of[events.name[rows]]
    count = np.bincount(number)
    total = np.bincount(number, weights=events.duration_ns[rows])
    repeated = count > 1
    if not repeated.any():
        pick = int(np.argmax(total))
        return rows[number == pick] if distinct[pick].startswith("ProfilerStep") else None
    pick = int(np.argmax(np.where(repeated, total, -1)))
    return _keep_one_thread(events, rows[number == pick])


def _keep_one_thread(events: Events, rows: Ints) -> Ints:
    """Return the rows of the thread that has most of them, in order of their start."""
    threads, count = np.unique(events.thread[rows], return_counts=True)
    rows = rows[events.thread[rows] == threads[np.argmax(count)]]
    return rows[np.argsort(events.start_ns[rows], kind="stable")]


def _make_steps(events: Events, rows: Ints, source: str) -> StepBounds:
    starts = events.start_ns[rows]
    keep = np.append([True], np.diff(starts) > 0)
    starts, rows = starts[keep], rows[keep]
    thread = int(events.thread[rows[0]])
    if len(starts) == 1:
        end = starts[0] + max(int(events.duration_ns[rows[0]]), 1)
        return StepBounds(np.array([starts[0], end]), rows, thread, source, single=True)
    return StepBounds(starts, rows, thread, source)
