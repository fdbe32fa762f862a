"""Which tasks of several ranks are one: in order where all have as many, else by step and time.

In: the rows of each rank. Out: a table [rank, transfer] of rows; −1 where a rank lacks one.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from foretrace.graph.model import Graph

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

_KIND = re.compile(
    r"all_?reduce|all_?gather|reduce_?scatter|broadcast|all_?to_?all|send_?recv|reduce|gather|scatter",
    re.IGNORECASE,
)
CLOSE_NS = 20_000
"""Ends of one transfer are closer than this on clocks that agree."""
CELLS = 1_000_000
"""Pairs of a step that are compared at most; beyond, ranks are paired in order."""
PARTNERS = 2


def match_in_order(graph: Graph, per_rank: Sequence[Ints]) -> Ints:
    """Match the tasks of *per_rank*: the n-th of a stream, the n-th in time, or step by step.

    The order on a stream holds where all ranks have as many there in every step, the order in time
    where they have as many. Where neither makes all members overlap in time, as those of one
    transfer must, the tasks of each step are aligned by what they are and when they end.
    """
    start, lane = (graph.tasks[column].to_numpy() for column in ("start_ns", "lane"))
    in_time = [rows[np.argsort(start[rows], kind="stable")] for rows in per_rank]
    by_stream = [rows[np.lexsort((start[rows], lane[rows]))] for rows in per_rank]
    orders = [in_time]
    if are_alike([np.unique(lane[rows], return_counts=True)[1] for rows in per_rank]):
        orders.insert(0, by_stream)
    steps = [_fill_steps(graph, rows) for rows in in_time]
    fewest = np.inf
    best: Ints | None = None
    if are_alike(steps):
        for order in orders:
            matched = np.stack(order)
            misfits = _count_misfits(graph, matched)
            if misfits < fewest:
                fewest, best = misfits, matched
    if best is not None and not fewest:
        return best
    aligned = _align_steps(graph, in_time, steps)
    if best is None or _count_misfits(graph, aligned) < fewest:
        return aligned
    return best


def match_by_ends(graph: Graph, rows: Ints, rank: Ints, ranks: int) -> Ints:
    """Match sends and receives that name no peer: those of several ranks that end together.

    Each ends when its data has arrived, on all that take part; whoever came first began earlier.
    """
    start, length = (graph.tasks[column].to_numpy() for column in ("start_ns", "duration_ns"))
    end = start + length
    order = np.lexsort((rank, end[rows]))
    matched: list[list[int]] = []
    taken: dict[int, int] = {}
    last_end = 0

    def close() -> None:
        if len(taken) >= PARTNERS:
            matched.append([taken.get(number, -1) for number in range(ranks)])

    for at, following in pairwise([*order.tolist(), -1]):
        row, who = int(rows[at]), int(rank[at])
        apart = end[row] - last_end
        near = bool(taken) and apart <= min(CLOSE_NS, max(int(length[row]) // 2, 1))
        if len(taken) >= PARTNERS and following >= 0 and int(rank[following]) in taken:
            near &= end[rows[following]] - end[row] >= apart  # else these two are the next
        if not near or who in taken:
            close()
            taken = {}
        taken[who] = row
        last_end = int(end[row])
    close()
    return np.array(matched, np.int64).reshape(-1, ranks).T


def are_alike(counts: Sequence[Ints]) -> bool:
    """Tell whether all ranks have as many."""
    return all(np.array_equal(count, counts[0]) for count in counts)


def _fill_steps(graph: Graph, rows: Ints) -> Ints:
    """Return the step of each of *rows*; one that was launched before the window is in the first.

    Others without a launch are in the step of the one before them.
    """
    step = graph.tasks["step"].to_numpy()[rows].astype(np.int64)
    return np.maximum.accumulate(np.maximum(step, 0)) if len(step) else step


def _count_misfits(graph: Graph, matched: Ints) -> int:
    """Return how many of *matched* have members that do not overlap in time."""
    start, length = (graph.tasks[column].to_numpy() for column in ("start_ns", "duration_ns"))
    end = np.where(matched >= 0, start[matched] + length[matched], np.iinfo(np.int64).max)
    begin = np.where(matched >= 0, start[matched], np.iinfo(np.int64).min)
    return int((begin.max(axis=0) > end.min(axis=0) + CLOSE_NS).sum())


def _align_steps(graph: Graph, ordered: Sequence[Ints], steps: Sequence[Ints]) -> Ints:
    """Align the tasks of each step to those of the rank that has most of them."""
    kind = _name_kinds(graph)
    end = (graph.tasks["start_ns"] + graph.tasks["duration_ns"]).to_numpy()
    size = graph.tasks["bytes"].to_numpy()
    parts: list[Ints] = []
    for step in np.unique(np.concatenate(steps)).tolist():
        here = [rows[of == step] for rows, of in zip(ordered, steps, strict=True)]
        most = max(here, key=len)
        columns = np.full((len(here), len(most)), -1, np.int64)
        extra: list[tuple[int, int]] = []
        for rank, rows in enumerate(here):
            score = _score(kind, end, size, most, rows)
            at = np.arange(len(rows)) if rows is most else _align(score)
            columns[rank, at[at >= 0]] = rows[at >= 0]
            extra += [(rank, row) for row in rows[at < 0].tolist()]
        alone = np.full((len(here), len(extra)), -1, np.int64)
        for number, (rank, row) in enumerate(extra):
            alone[rank, number] = row
        parts += [columns, alone]
    matched = np.concatenate(parts, axis=1)
    ends = np.where(matched >= 0, end[matched], -1).max(axis=0)
    return matched[:, np.argsort(ends, kind="stable")]


def _name_kinds(graph: Graph) -> Ints:
    """Return a number per task for the kind of collective that its name tells."""
    names = graph.tasks["name"].array
    kinds = [
        match[0].lower().replace("_", "") if (match := _KIND.search(str(name))) else ""
        for name in names.categories
    ]
    numbers = np.unique([*kinds, ""], return_inverse=True)[1]
    return np.asarray(numbers[names.codes], np.int64)


def _score(kind: Ints, end: Ints, size: Floats, most: Ints, rows: Ints) -> Floats:
    """Return how well each of *most* fits each of *rows*: kind, then size and end."""
    same = kind[most][:, None] == kind[rows]
    apart = np.abs(end[most][:, None] - end[rows])
    fits = size[most][:, None] == size[rows]
    fits |= np.isnan(size[most])[:, None] | np.isnan(size[rows])
    return np.where(same, 1 + 0.5 * fits + 2 / (1 + apart / CLOSE_NS), -np.inf)


def _align(score: Floats) -> Ints:
    """Return per column of *score* the row it is matched to, in order; −1 where none fits."""
    rows, columns = score.shape
    if rows * columns > CELLS:
        return np.where(np.arange(columns) < rows, np.arange(columns), -1)
    best = np.zeros((rows + 1, columns + 1))
    for row in range(rows):
        matched = best[row, :-1] + score[row]
        best[row + 1, 1:] = np.maximum.accumulate(np.maximum(matched, best[row, 1:]))
    at = np.full(columns, -1, np.int64)
    row, column = rows, columns
    while row and column:
        if best[row, column] == best[row - 1, column]:
            row -= 1
        elif best[row, column] == best[row, column - 1]:
            column -= 1
        else:
            row, column = row - 1, column - 1
            at[column] = row
    return at
