"""Which collectives of several ranks belong together: one transfer for each.

In: the tables of all ranks, one below the other, and the process group of each collective. Out:
who takes part in which transfer, and how long it takes once the last has arrived.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from foretrace.errors import GraphError
from foretrace.graph.ranks.align import match_by_ends
from foretrace.graph.ranks.unnamed_groups import match_members
from foretrace.graph.state import Doubt, ProcessGroup
from foretrace.util.schema import matches

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from foretrace.graph.model import Graph

    Ints = NDArray[np.int64]

_ALL_TO_ALL = re.compile("all_?to_?all", re.IGNORECASE)
_PAIR = re.compile(r"(?<!\d)(\d+)->(\d+)$")
_PEER = re.compile(r"(?<= )(\d*)->(\d*)$")
"""End of the name of a sender and a receiver; a recording names the peer only."""
NAMED = 8
"""How many ranks a sentence lists at most."""


WORLD = ProcessGroup()
"""The group of collectives that name none: every recorded rank may be in it."""


class Transfers(NamedTuple):
    """Task ``row[i]`` takes part in ``transfer[i]``; the other columns have a row per transfer."""

    row: Ints
    transfer: Ints
    first: Ints  # the task of the first of the members
    begins_ns: Ints  # the last member arrives
    duration_ns: Ints
    link: Ints  # which of the links carries it


class _Collectives(NamedTuple):
    """Collectives of all ranks: task, place of the rank, and group."""

    row: Ints
    rank: Ints
    group: Ints  # place in `groups`
    groups: list[ProcessGroup]


class Matched(NamedTuple):
    """The collectives of all ranks that are one, and what is said of the others."""

    transfers: Transfers | None
    notes: tuple[str, ...]
    doubts: tuple[Doubt, ...]


def match_collectives(
    graph: Graph, first_row: Ints, groups: Sequence[Mapping[int, ProcessGroup]]
) -> Matched:
    """Match the collectives of all ranks, group by group; also tell what did not match.

    Parameters
    ----------
    graph
        All ranks, one below the other.
    first_row
        Where the tasks of each rank begin, and where the last ones end.
    groups
        Per rank, the group of its collectives by row within the rank; `WORLD` where unknown.

    Raises
    ------
    GraphError
        A member of a group never arrives, or a group has more members than it can have.
    """
    names = _number_ranks(graph, first_row)
    collectives, unpaired = _list_collectives(graph, first_row, groups, names)
    parts: list[Ints] = []
    doubts: list[Doubt] = []
    for number in np.unique(collectives.group).tolist():
        group, mine = collectives.groups[number], collectives.group == number
        per_rank = {
            int(rank): collectives.row[mine & (collectives.rank == rank)]
            for rank in np.unique(collectives.rank[mine])
        }
        _check_members(graph, group, per_rank, names)
        for members, matched in match_members(graph, group, list(per_rank.values())):
            parts.append(matched)
            ranks = [names[list(per_rank)[member]] for member in members]
            doubts += _doubt_missing(graph, group, matched, ranks)
    pairs = match_by_ends(graph, unpaired.row, unpaired.rank, len(names))
    notes = []
    if pairs.shape[1]:
        parts.append(pairs)
        notes.append(
            f"{pairs.shape[1]} sends and receives name no peer: those that end together are one"
        )
    if not parts:
        return Matched(None, tuple(notes), tuple(doubts))
    return Matched(_join_groups(graph, parts), tuple(notes), tuple(doubts))


def leave_out(transfers: Transfers, gone: NDArray[np.bool_]) -> Transfers:
    """Return *transfers* without those *gone*."""
    kept = ~gone[transfers.transfer]
    number = np.cumsum(~gone) - 1
    return Transfers(
        row=transfers.row[kept],
        transfer=number[transfers.transfer[kept]],
        first=transfers.first[~gone],
        begins_ns=transfers.begins_ns[~gone],
        duration_ns=transfers.duration_ns[~gone],
        link=np.unique(transfers.link[~gone], return_inverse=True)[1],
    )


def _number_ranks(graph: Graph, first_row: Ints) -> list[int]:
    """Return the number of each rank, in the order of the tables."""
    lane = graph.tasks["lane"].to_numpy()[first_row[:-1]]
    numbers: list[int] = graph.lanes["rank"].to_numpy()[lane].tolist()
    return numbers


def _list_collectives(
    graph: Graph, first_row: Ints, groups: Sequence[Mapping[int, ProcessGroup]], names: list[int]
) -> tuple[_Collectives, _Collectives]:
    """List the tasks that need their peers: those of a group, and pairs that nobody named."""
    collective = (graph.tasks["kind"] == "collective").to_numpy()
    p2p = (graph.tasks["kind"] == "p2p").to_numpy()
    rows = np.flatnonzero(collective | p2p)
    rank = np.searchsorted(first_row, rows, side="right") - 1
    own = rows - first_row[rank]
    number: dict[ProcessGroup, int] = {}
    group = np.array(
        [
            number.setdefault(_name_both_ends(groups[r].get(row, WORLD), names[r]), len(number))
            for r, row in zip(rank.tolist(), own.tolist(), strict=True)
        ],
        np.int64,
    )
    paired = np.array([bool(_PAIR.search(each.name or "")) for each in number], bool)
    keep = collective[rows] | (p2p & _is_all_to_all(graph))[rows]
    keep |= paired[group] if number else keep
    known, other = (
        _Collectives(rows[part], rank[part], group[part], list(number)) for part in (keep, ~keep)
    )
    return known, other


def _is_all_to_all(graph: Graph) -> NDArray[np.bool_]:
    """Tell which tasks belong to an all-to-all, which runs as sends and receives."""
    exchanges = np.append(matches(graph.operators["name"], _ALL_TO_ALL), [False])
    parent = np.append(graph.operators["parent"].to_numpy(), [-1])
    operator = graph.tasks["operator"].to_numpy()
    belongs = np.zeros(len(operator), bool)
    while (operator >= 0).any():
        belongs |= exchanges[operator]
        operator = parent[operator]
    return belongs


def _check_members(
    graph: Graph, group: ProcessGroup, per_rank: Mapping[int, Ints], names: list[int]
) -> None:
    """Raise unless everybody who must attend does."""
    present = {names[rank] for rank in per_rank}
    absent = sorted(_list_expected(group, names) - present)
    if absent:
        rows = next(iter(per_rank.values()))
        what = graph.tasks["name"].astype(object).iloc[int(rows[0])]
        raise GraphError(
            f"{_list_ranks(absent)} never {_inflect('arrive', absent)} at {what}{group}, for which "
            f"{_list_ranks(sorted(present))} {_inflect('wait', sorted(present))}: record the same "
            "steps on every rank"
        )
    if 0 < group.size < len(present):
        raise GraphError(
            f"collectives{group} have {group.size} members, yet {_list_ranks(sorted(present))} "
            "recorded some: give every group a name of its own"
        )


def _name_both_ends(group: ProcessGroup, rank: int) -> ProcessGroup:
    """Return *group* with both ends of a pair named: *rank* recorded only the other one.

    >>> [_name_both_ends(ProcessGroup(name), 1).name for name in ("0 ->3", "0 3->", "dp")]
    ['0 1->3', '0 3->1', 'dp']
    """
    pair = _PEER.search(group.name or "")
    if pair is None:
        return group
    ends = "->".join(end or str(rank) for end in pair.groups())
    return ProcessGroup(f"{(group.name or '')[: pair.start()]}{ends}", size=2)


def _list_expected(group: ProcessGroup, names: list[int]) -> set[int]:
    """Return the recorded ranks that must be members of *group*."""
    pair = _PAIR.search(group.name or "")
    if pair:
        return {int(number) for number in pair.groups()} & set(names)
    everybody = group.name is None or group.size >= len(names)
    return set(names) if everybody else set()


def _doubt_missing(
    graph: Graph, group: ProcessGroup, matched: Ints, names: Sequence[int]
) -> list[Doubt]:
    """Say which members lack at which collectives: the others meet without them."""
    missing = matched < 0
    if not missing.any():
        return []
    short = [names[rank] for rank in np.flatnonzero(missing.any(axis=1)).tolist()]
    at = int(np.flatnonzero(missing.any(axis=0))[0])
    row = int(matched[:, at].max())
    lost = int(missing.any(axis=0).sum())
    text = (
        f"{_list_ranks(short)} {_inflect('lack', short)} at {lost} of {matched.shape[1]}"
        f" collectives{group}: the others meet without; record the same steps on every rank, with"
        " nothing lost"
    )
    name = str(graph.tasks["name"].iloc[row])
    return [Doubt("collectives-unmatched", text, f"step {graph.tasks['step'].iloc[row]}, {name}")]


def _join_groups(graph: Graph, matched: Sequence[Ints]) -> Transfers:
    """Return all transfers in one table; those of one group and stream share a link.

    Members that lack (row −1) have no say. Of a collective that one member alone recorded, the
    waiting cannot be seen: it takes as long as its like.
    """
    start, length, lane = (graph.tasks[c].to_numpy() for c in ("start_ns", "duration_ns", "lane"))
    counts = [rows.shape[1] for rows in matched]
    place = np.repeat(np.arange(len(matched)), counts)
    first = np.concatenate([rows[(rows >= 0).argmax(axis=0), range(rows.shape[1])]
                            for rows in matched])  # fmt: skip
    row = np.concatenate([rows.ravel() for rows in matched])
    offsets = np.cumsum([0, *counts])
    transfer = np.concatenate(
        [
            np.broadcast_to(np.arange(rows.shape[1]) + offset, rows.shape).ravel()
            for rows, offset in zip(matched, offsets.tolist(), strict=False)
        ]
    )
    row, transfer = row[row >= 0], transfer[row >= 0]
    begins = np.full(len(first), np.iinfo(np.int64).min)
    np.maximum.at(begins, transfer, start[row])
    ends = pd.Series(start[row] + length[row]).groupby(transfer).median().to_numpy()
    duration = np.clip(ends - begins, 0, None).astype(np.int64)
    alone = np.bincount(transfer, minlength=len(first)) == 1
    for part in np.unique(place[alone]).tolist():
        together = (place == part) & ~alone
        if together.any():
            usual = int(np.median(duration[together]))
            here = (place == part) & alone
            duration[here] = np.minimum(duration[here], usual)
    key = place * (int(lane.max(initial=0)) + 1) + lane[first]
    return Transfers(
        row=row,
        transfer=transfer,
        first=first,
        begins_ns=begins,
        duration_ns=duration,
        link=np.unique(key, return_inverse=True)[1],
    )


def _list_ranks(ranks: Sequence[int]) -> str:
    """Return *ranks* for a sentence.

    >>> _list_ranks([3]), _list_ranks([0, 1, 2])
    ('rank 3', 'ranks 0, 1 and 2')
    """
    shown = [str(rank) for rank in ranks[:NAMED]]
    if len(ranks) > NAMED:
        shown[-1] = f"{len(ranks) - NAMED + 1} more"
    *others, last = shown
    return f"ranks {', '.join(others)} and {last}" if others else f"rank {last}"


def _inflect(verb: str, ranks: Sequence[int]) -> str:
    return verb if len(ranks) > 1 else f"{verb}s"
