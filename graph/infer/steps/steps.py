"""Where the iterations of a recording begin.

In: the host ranges of one rank. Out: step starts on the host, and which annotation said so. What
an operator calls itself is no step, and of several threads with steps the one with the work counts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foretrace.errors import GraphError
from foretrace.graph.infer.events import match_names
from foretrace.util.patterns import compile_given, searchable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foretrace.graph.infer.events import Events

    Ints = NDArray[np.int64]

_DIGITS = re.compile(r"\d+")
_TRACED = re.compile(r", (?:seq|op_id|sizes|input_op_ids) = .*", re.DOTALL)
"""What `torch.autograd.profiler.emit_nvtx` appends to the name of every range it makes."""
_OPERATOR = re.compile(r"^\w+::")
_MARKERS = (
    ("ProfilerStep", re.compile(r"^ProfilerStep#")),
    (
        "step range",
        re.compile(
            r"^(\[pl\]\[profile\])?[\W_]*+(epoch(?>[\W_]*?#)[\W_]*+)?((global|run|train(ing)?)[\W_]*)*"
            r"(step|iteration|iter|batch)[\W_]*$",
            re.IGNORECASE,
        ),
    ),
    ("forward range", re.compile(r"^\W*(forward|fwd)\W*$", re.IGNORECASE)),
    ("Optimizer.step", re.compile(r"^Optimizer\.step")),
    ("Optimizer.zero_grad", re.compile(r"^Optimizer\.zero_grad")),
    ("repeated range", re.compile(r"#")),
)
"""Tried in this order, on names with each number replaced by #: their *shape*."""
_CERTAIN = ("ProfilerStep", "step range", "Optimizer.step")
"""Markers that say of themselves that they are steps; the others are guesses."""
COVERAGE = 0.5
"""Of the recording, for a repeated range that does not call itself a step."""
LEAST_MATCHES = 2


@dataclass(frozen=True)
class StepBounds:
    """Step ``i`` spans ``starts_ns[i]`` to ``starts_ns[i + 1]`` on thread ``thread``.

    ``rows`` are the markers' rows in the rank's events, ``name`` is what they are called with each
    number replaced by #, and ``numbers`` what they count, where they do: one more each time.
    With one marker only, the second boundary is that marker's end and ``single`` is true.
    """

    starts_ns: Ints
    rows: Ints
    thread: int
    source: str
    name: str
    numbers: Ints | None = None
    single: bool = False

    @property
    def is_guess(self) -> bool:
        """Whether nobody said that these are steps."""
        return self.source not in _CERTAIN and not self.source.startswith("pattern")

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
    shapes = {int(code): shape for code in used if (shape := _shape(events.names[code]))}
    for source, marker in _MARKERS:
        wanted = {code: shape for code, shape in shapes.items() if marker.search(shape)}
        markers = _find_candidates(events, ranges, wanted)
        if markers is not None and (source != "repeated range" or _covers(events, markers, ranges)):
            return _make_steps(events, markers, source)
    return None


def _shape(name: str) -> str | None:
    """Return *name* with each number replaced by #; ``None`` of an operator.

    >>> _shape("aten::mm, seq = 5, op_id = 7"), _shape("MmBackward0, op_id = 3")
    (None, None)
    >>> _shape("step 3, op_id = 9"), _shape("Optimizer.step#SGD.step")
    ('step #', 'Optimizer.step#SGD.step')
    """
    bare = _TRACED.sub("", name)
    shape = _DIGITS.sub("#", bare)
    if _OPERATOR.match(bare):
        return None
    calls_itself_one = any(marker.search(shape) for _, marker in _MARKERS[:-1])
    return shape if bare == name or calls_itself_one else None


def _covers(events: Events, rows: Ints, ranges: Ints) -> bool:
    """Tell whether *rows*, without what they share, cover most of the time that is annotated."""
    starts, ends = events.start_ns, events.start_ns + events.duration_ns
    reached = np.append([0], np.maximum.accumulate(ends[rows])[:-1])
    covered = np.clip(ends[rows] - np.maximum(starts[rows], reached), 0, None).sum()
    return bool(covered > COVERAGE * (ends[ranges].max() - starts[ranges].min()))


def _find_by_pattern(events: Events, ranges: Ints, pattern: str) -> StepBounds:
    given = compile_given(pattern, GraphError, "step pattern ")
    names = [searchable(name) for name in events.names]
    hit = match_names(names, given)[events.name[ranges]]
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
    place = {shape: number for number, shape in enumerate(distinct)}
    shape_of = np.full(len(events.names) + 1, -1, np.int64)
    for code, shape in wanted.items():
        shape_of[code] = place[shape]
    rows = ranges[shape_of[events.name[ranges]] >= 0]
    number = shape_of[events.name[rows]]
    repeated = np.bincount(number) > 1
    if not repeated.any():
        total = np.bincount(number, weights=events.duration_ns[rows])
        pick = int(np.argmax(total))
        return rows[number == pick] if distinct[pick].startswith("ProfilerStep") else None
    rows, number = rows[repeated[number]], number[repeated[number]]
    worked = _find_working_thread(events, rows)
    rows, number = rows[worked], number[worked]
    total = np.bincount(number, weights=events.duration_ns[rows])
    pick = int(np.argmax(np.where(np.bincount(number) > 1, total, -1)))
    return _in_order(events, rows[number == pick])


def _keep_one_thread(events: Events, rows: Ints) -> Ints:
    """Return the rows of the thread with the work, in order of their start."""
    return _in_order(events, rows[_find_working_thread(events, rows)])


def _find_working_thread(events: Events, rows: Ints) -> NDArray[np.bool_]:
    """Tell which of *rows* are on the thread that does the work of the steps.

    That is the one with most API calls, else most operators, else most of *rows*; one with a single
    row is none while another has more.
    """
    threads, marks = np.unique(events.thread[rows], return_counts=True)
    if len(threads) == 1:
        return np.ones(len(rows), bool)
    work = [
        np.bincount(np.searchsorted(threads, on[np.isin(on, threads)]), minlength=len(threads))
        for kind in ("runtime", "op")
        for on in (events.thread[events.is_kind(kind)],)
    ]
    best = max(
        range(len(threads)),
        key=lambda at: (bool(marks[at] > 1), *(int(count[at]) for count in work), int(marks[at])),
    )
    on_best: NDArray[np.bool_] = events.thread[rows] == threads[best]
    return on_best


def _in_order(events: Events, rows: Ints) -> Ints:
    return rows[np.argsort(events.start_ns[rows], kind="stable")]


def _make_steps(events: Events, rows: Ints, source: str) -> StepBounds:
    starts = events.start_ns[rows]
    keep = np.append([True], np.diff(starts) > 0)
    starts, rows = starts[keep], rows[keep]
    thread = int(events.thread[rows[0]])
    names = [_TRACED.sub("", events.names[code]) for code in events.name[rows].tolist()]
    name, numbers = _DIGITS.sub("#", names[0]).replace("##", "#"), _read_numbers(names)
    if len(starts) == 1:
        end = starts[0] + max(int(events.duration_ns[rows[0]]), 1)
        both = np.array([starts[0], end])
        return StepBounds(both, rows, thread, source, name, numbers, single=True)
    return StepBounds(starts, rows, thread, source, name, numbers)


def _read_numbers(names: list[str]) -> Ints | None:
    """Return the last number in each of *names*, where they count one by one.

    >>> _read_numbers(["step 8", "step 9"]), _read_numbers(["step 8", "step 8"])
    (array([8, 9]), None)
    """
    digits = [_DIGITS.findall(name)[-1:] for name in names]
    if not all(digits):
        return None
    try:
        numbers = np.array([int(each) for (each,) in digits], np.int64)
    except (ValueError, OverflowError):
        return None
    return numbers if (np.diff(numbers) == 1).all() else None
