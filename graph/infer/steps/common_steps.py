"""Which steps all ranks of a job recorded: the only ones in which they can meet.

In: the step markers of every rank, on one clock. Out: for each rank the first and one past the last
of the common steps, counted among its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from foretrace.errors import GraphError
from foretrace.graph.infer.steps.window import WARM_UP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from foretrace.graph.infer.steps.steps import StepBounds

    Ints = NDArray[np.int64]
    Span = tuple[int, int]

COINCIDE = 0.1
"""Share of a step by which starts may differ that contradict the numbers of the steps; the stages
of a pipeline begin a step at other moments."""
LEAST_STEPS = 2
"""One step shows no period."""
LEAST_SHARE = 0.5
"""Of the markers of the rank that has fewer, that must have a partner when ranks are paired by
time."""


def find_common_steps(ranks: Sequence[StepBounds | None]) -> list[Span | None]:
    """Pair the steps of *ranks* by their numbers, else by their time.

    Ranks without steps, or with a single one, have nothing to pair: then all are ``None``.

    Raises
    ------
    GraphError
        The ranks have no step in common.
    """
    bounds = [rank for rank in ranks if rank is not None and not rank.single]
    if len(bounds) < len(ranks):
        return [None] * len(ranks)
    shifts = [_find_shift(bounds[0], other) for other in bounds]
    first = max(-shift for shift in shifts)
    last = min(len(rank.starts_ns) - 1 - at for rank, at in zip(bounds, shifts, strict=True))
    if last <= first:
        raise GraphError(
            "ranks: no step was recorded on all of them, record the same steps on every rank"
        )
    return [(first + shift, last + shift) for shift in shifts]


def intersect_spans(commons: Sequence[Span], kept: Sequence[Span]) -> list[Span]:
    """Return what all ranks keep of the steps in *commons*: *kept* has what each does by itself.

    Where that is no step, or one although more are common, all keep those that were common before,
    but for the warm-up: each rank lost events of other steps, and one step shows no period.

    >>> intersect_spans([(0, 5), (2, 7)], [(1, 5), (3, 6)])
    [(1, 4), (3, 6)]
    >>> intersect_spans([(0, 6), (2, 8)], [(0, 2), (3, 8)])
    [(2, 6), (4, 8)]
    """
    first = max(span[0] - common[0] for span, common in zip(kept, commons, strict=True))
    last = min(span[1] - common[0] for span, common in zip(kept, commons, strict=True))
    count = commons[0][1] - commons[0][0]
    if last - first < min(LEAST_STEPS, count):
        first, last = int(count * WARM_UP), count
    return [(common[0] + first, common[0] + last) for common in commons]


def _find_shift(first: StepBounds, other: StepBounds) -> int:
    """Return how many places later a step of *first* stands in *other*."""
    in_time = _align(first.starts_ns, other.starts_ns)
    if first.numbers is None or other.numbers is None:
        return in_time
    numbered = int(first.numbers[0] - other.numbers[0])
    apart = _apart(first.starts_ns, other.starts_ns, numbered)
    period = float(np.median(np.diff(first.starts_ns)))
    if apart <= period:
        return numbered
    by_time = _apart(first.starts_ns, other.starts_ns, in_time)
    return in_time if by_time < COINCIDE * period else numbered


def _align(first: Ints, other: Ints) -> int:
    """Return the shift at which the starts of both lie closest; of equals the smallest."""
    fewer = min(len(first), len(other))
    reach = len(first) + len(other) - max(round(LEAST_SHARE * fewer), 1)
    shifts = sorted(range(-reach, reach + 1), key=lambda shift: (abs(shift), shift))
    least = LEAST_SHARE * fewer
    known = [shift for shift in shifts if _overlap(first, other, shift) >= least]
    return min(known, key=lambda shift: _apart(first, other, shift), default=0)


def _overlap(first: Ints, other: Ints, shift: int) -> int:
    return min(len(first), len(other) - shift) - max(0, -shift)


def _apart(first: Ints, other: Ints, shift: int) -> float:
    """Return how far apart the starts of the same step are in the median; infinite without any."""
    begin, end = max(0, -shift), min(len(first), len(other) - shift)
    if end <= begin:
        return float("inf")
    return float(np.median(np.abs(first[begin:end] - other[begin + shift : end + shift])))
