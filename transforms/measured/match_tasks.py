"""Which task of one recording is which of another: two graphs in, rows of counterparts out.

Steps are paired by their place in the window. Within a step, what each thread did is put beside
what it did in the other recording, by the longest common subsequence: first calls of the same name
in the same operator that launch the same kernel, then, of the rest, calls that launch a kernel of
the same class. Device work goes with the call that launched it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foretrace.transforms.costs.kernel_names import classes
from foretrace.transforms.edit.columns import of_category
from foretrace.transforms.edit.select import call_of
from foretrace.util.common_subsequence import common_subsequence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt
    import pandas as pd

    from foretrace.graph.model import Graph
    from foretrace.transforms.edit.columns import Rows

    Names = npt.NDArray[np.object_]

LONGEST = 40_000
"""Sequences that differ over more entries are matched by name and number: bits by the square."""
NONE = -1
_NUMBER = re.compile(r"\d+")


class _Described(NamedTuple):
    """The tasks of one graph: what each is, exactly and roughly, and which list it stands in.

    ``lists`` holds the rows by lane and step, in order; device work with a known launch is in none.
    """

    exact: Names
    rough: Names
    lists: dict[tuple[tuple[int, str, str, int], int], Rows]
    call: Rows


def match_tasks(graph: Graph, other: Graph) -> Rows:
    """Return, per task of *graph*, the row of its counterpart in *other*; −1 where it has none.

    A step is put beside that of the same place in the other window; where that is shorter, it
    begins again.

    >>> from foretrace.graph.literal import literal
    >>> one = literal([("gemm", "kernel", 0, 9, None), ("relu", "kernel", 0, 5, None)])
    >>> other = literal([("relu", "kernel", 0, 4, None)])
    >>> match_tasks(one, other).tolist()
    [-1, 0]
    """
    mine, theirs = _describe(graph), _describe(other)
    partner = np.full(len(graph.tasks), NONE, np.int64)
    for (lane, step), rows in mine.lists.items():
        beside = step if step < 0 else step % other.steps
        listed = theirs.lists.get((lane, beside))
        if listed is None:
            continue
        _match(mine.exact, theirs.exact, rows, listed, partner)
        taken = np.isin(listed, partner[rows])
        left = rows[partner[rows] < 0]
        _match(mine.rough, theirs.rough, left, listed[~taken], partner)
    _match_launched(mine, theirs, partner, [graph, other])
    return partner


def _describe(graph: Graph) -> _Described:
    tasks = graph.tasks
    name = tasks["name"].astype(object).to_numpy()
    operator = _operator_names(graph)
    call = call_of(graph)
    exact, rough = _first_launched(graph, name, call)
    unnumbered = of_category(tasks["name"], _leave_out_numbers, "")
    whole = _as_objects([*zip(name, operator, exact, strict=True)])
    coarse = _as_objects([*zip(unnumbered, operator, rough, strict=True)])
    kernels = (graph.lanes["kind"] == "stream").to_numpy()[tasks["lane"].to_numpy()]
    coarse[kernels] = classes(tasks["name"])[kernels]
    return _Described(whole, coarse, _list_by_lane(graph, np.flatnonzero(call < 0)), call)


def _leave_out_numbers(name: str) -> str:
    """Return *name* as it is in every step: ranges may count them."""
    return _NUMBER.sub("#", name)


def _as_objects(values: Sequence[tuple[str, ...]]) -> Names:
    whole = np.empty(len(values), object)
    whole[:] = values
    return whole


def _operator_names(graph: Graph) -> Names:
    names = np.append(graph.operators["name"].astype(object).to_numpy(), "")
    return names[graph.tasks["operator"].to_numpy()]


def _first_launched(graph: Graph, name: Names, call: Rows) -> tuple[Names, Names]:
    """Return name and class of the first work that each call launched; "" where there is none."""
    exact, rough = (np.full(len(name), "", object) for _ in range(2))
    launched = np.flatnonzero(call >= 0)
    start = graph.tasks["start_ns"].to_numpy()
    last_first = launched[np.argsort(-start[launched], kind="stable")]
    exact[call[last_first]] = name[last_first]
    rough[call[last_first]] = classes(graph.tasks["name"])[last_first]
    return exact, rough


def _list_by_lane(graph: Graph, rows: Rows) -> dict[tuple[tuple[int, str, str, int], int], Rows]:
    """Return *rows* by what their lane is and by step, each list in order of time."""
    lane, step, start = (graph.tasks[c].to_numpy()[rows] for c in ("lane", "step", "start_ns"))
    order = np.lexsort((rows, start, step, lane))
    rows, lane, step = rows[order], lane[order], step[order]
    keys = lane_keys(graph)
    begins = np.flatnonzero(np.append(True, (np.diff(lane) != 0) | (np.diff(step) != 0)))
    return {
        (keys[lane[at]], int(step[at])): part
        for at, part in zip(begins, np.split(rows, begins[1:]), strict=True)
        if len(part)
    }


def lane_keys(graph: Graph) -> list[tuple[int, str, str, int]]:
    """Return what each lane is, in words that hold in another recording: the nth of its kind.

    Ranks count by their place, so that two ranks of one job can be put side by side.
    """
    seen: dict[tuple[int, str, str], int] = defaultdict(int)
    lanes = graph.lanes
    place = {rank: at for at, rank in enumerate(sorted(set(lanes["rank"].tolist())))}
    keys = []
    for rank, kind, role in zip(lanes["rank"], lanes["kind"], lanes["role"], strict=True):
        key = (place[rank], str(kind), str(role))
        keys.append((*key, seen[key]))
        seen[key] += 1
    return keys


def _match(mine: Names, theirs: Names, rows: Rows, listed: Rows, partner: Rows) -> None:
    """Enter into *partner* which of *rows* are which of *listed*."""
    ours, others = _align(tuple(mine[rows]), tuple(theirs[listed]))
    partner[rows[ours]] = listed[others]


@lru_cache(maxsize=256)
def _align(left: tuple[object, ...], right: tuple[object, ...]) -> tuple[Rows, Rows]:
    """Return the places of what both have in common; steps are alike, so remembered."""
    if left == right:
        return np.arange(len(left)), np.arange(len(left))
    if max(len(left), len(right)) > LONGEST:
        numbers = {key: at for at, key in enumerate(_numbered(right))}
        pairs = [(at, numbers[key]) for at, key in enumerate(_numbered(left)) if key in numbers]
        places = np.array(pairs, np.int64).reshape(-1, 2)
        return places[:, 0], places[:, 1]
    ours, others = common_subsequence(left, right)
    return np.array(ours, np.int64), np.array(others, np.int64)


def _numbered(values: Sequence[object]) -> Iterator[tuple[object, int]]:
    seen: dict[object, int] = defaultdict(int)
    for value in values:
        yield value, seen[value]
        seen[value] += 1


def _match_launched(
    mine: _Described, theirs: _Described, partner: Rows, graphs: Sequence[Graph]
) -> None:
    """Let the work that a call launched go with that of the call's counterpart, in order."""
    listed = {key: row for row, key in _launched(theirs.call, graphs[1].tasks)}
    for row, (call, number) in _launched(mine.call, graphs[0].tasks):
        partner[row] = listed.get((int(partner[call]), number), NONE)


def _launched(call: Rows, tasks: pd.DataFrame) -> Iterator[tuple[int, tuple[int, int]]]:
    """Yield device work with its call, and its number among what that launched."""
    rows = np.flatnonzero(call >= 0)
    order = rows[np.lexsort((tasks["start_ns"].to_numpy()[rows], call[rows]))]
    begins = np.searchsorted(call[order], call[order])
    yield from zip(
        order.tolist(),
        zip(call[order].tolist(), (np.arange(len(order)) - begins).tolist(), strict=True),
        strict=True,
    )
