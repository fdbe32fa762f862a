"""Collectives whose group no recording names: who takes part is told by who ends together.

In: the collectives of each rank. Out: transfers, group by group.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from foretrace.graph.ranks.align import CLOSE_NS, are_alike, match_in_order

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from foretrace.graph.model import Graph
    from foretrace.graph.state import ProcessGroup

    Ints = NDArray[np.int64]

PARTNERS = 2
"""Fewer are no group: where one rank ends alone, times tell nothing."""


def match_members(
    graph: Graph, group: ProcessGroup, per_rank: Sequence[Ints]
) -> list[tuple[tuple[int, ...], Ints]]:
    """Return who meets, by place in *per_rank*, and their transfers [member, transfer].

    A group with a name is one; of those that name none, those that end together are.
    """
    if group.name is None:
        return _split_by_ends(graph, per_rank)
    return [(tuple(range(len(per_rank))), match_in_order(graph, per_rank))]


def _split_by_ends(graph: Graph, per_rank: Sequence[Ints]) -> list[tuple[tuple[int, ...], Ints]]:
    """Return each group of ranks that end together, and its transfers [member, transfer].

    A collective ends on all its members at one moment. Those at the same place of a step on a
    stream have the same members, whatever the step.

    Parameters
    ----------
    per_rank
        The rows of each rank that name no group.
    """
    start, length, lane = (graph.tasks[c].to_numpy() for c in ("start_ns", "duration_ns", "lane"))
    by_stream = [rows[np.lexsort((start[rows], lane[rows]))] for rows in per_rank]
    is_alike = are_alike([np.unique(lane[rows], return_counts=True)[1] for rows in per_rank])
    matched = np.stack(by_stream) if is_alike else match_in_order(graph, per_rank)
    end = np.where(matched >= 0, (start + length)[matched], np.nan)
    columns: dict[tuple[int, ...], list[Ints]] = defaultdict(list)
    for here in _list_places(graph, matched):
        for members in _find_groups(end[:, here]):
            columns[members].append(here)
    everybody = tuple(range(len(per_rank)))
    if list(columns) == [everybody]:
        return [(everybody, match_in_order(graph, per_rank))]
    parts = {
        members: matched[np.array(members)][:, np.sort(np.concatenate(places))]
        for members, places in columns.items()
    }
    return [(members, part[:, (part >= 0).any(axis=0)]) for members, part in parts.items()]


def _list_places(graph: Graph, matched: Ints) -> list[Ints]:
    """Return the transfers of each place: stream, and number in the step, of the first member."""
    first = matched[(matched >= 0).argmax(axis=0), np.arange(matched.shape[1])]
    where = pd.DataFrame({c: graph.tasks[c].to_numpy()[first] for c in ("lane", "step")})
    number = where.groupby(["lane", "step"]).cumcount()
    groups = where.assign(number=number).groupby(["lane", "number"]).indices
    return [np.asarray(rows, np.int64) for rows in groups.values()]


def _find_groups(end: NDArray[np.float64]) -> list[tuple[int, ...]]:
    """Return the ranks that usually end together; all of them where one would be alone."""
    everybody = tuple(range(len(end)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # ranks that are never both there
        apart = np.nanmedian(np.abs(end[:, None] - end[None, :]), axis=2)
    together = ~(apart > CLOSE_NS)
    groups = list(dict.fromkeys(tuple(np.flatnonzero(row).tolist()) for row in together))
    is_partition = sum(map(len, groups)) == len(end) and min(map(len, groups)) >= PARTNERS
    return groups if is_partition else [everybody]
