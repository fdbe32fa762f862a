"""The definition of a valid network: what its routes and members must say about its graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from foretrace.errors import GraphError
from foretrace.graph.model import TASK_KINDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from foretrace.graph.model import Graph
    from foretrace.graph.network import Network

    Longs = NDArray[np.int64]

LEAST_SHARE = 1e-6
"""A speed below this would make nanoseconds overflow before a task ends."""
SPELLED = 4
"""How many ranks an error names at most."""


def check_network(graph: Graph, network: Network) -> None:
    """Raise `GraphError` unless *network* fits the lanes and tasks of *graph*."""
    for name in ("compute_share", "transfer_share"):
        share = getattr(network, name)
        if not LEAST_SHARE <= share <= 1:
            raise GraphError(f"network: {name} is {share}, expected above 0 and at most 1")
    for kind in network.slowed:
        if kind not in TASK_KINDS:
            kinds = ", ".join(TASK_KINDS)
            raise GraphError(f"network: kind {kind!r} is unknown, expected one of {kinds}")
    _routes(graph, network)
    _members(graph, network)
    _arrivals(graph, network)


def _routes(graph: Graph, network: Network) -> None:
    lane, link, use = network.columns("routes")
    _in_range("route", "lane", lane, len(graph.lanes))
    _in_range("route", "link", link, len(network.links))
    for at in np.flatnonzero(~((use > 0) & (use <= 1))):
        raise GraphError(
            f"network: route {at} takes {use[at]} of its link, expected above 0 and at most 1"
        )
    _carry_transfers(graph, lane)
    for at in np.flatnonzero(pd.DataFrame({"lane": lane, "link": link}).duplicated()):
        raise GraphError(
            f"network: lane {lane[at]} has two routes over link {network.links[link[at]]!r}"
        )


def _members(graph: Graph, network: Network) -> None:
    lane, rank = network.columns("members")
    _in_range("member", "lane", lane, len(graph.lanes))
    _carry_transfers(graph, lane)
    for at in np.flatnonzero(~np.isin(rank, graph.lanes["rank"])):
        raise GraphError(f"network: member {at} is rank {rank[at]}, which has no lane")


def _in_range(what: str, column: str, rows: Longs, limit: int) -> None:
    for at in np.flatnonzero((rows < 0) | (rows >= limit)):
        raise GraphError(f"network: {what} {at} names {column} {rows[at]}, out of range")


def _carry_transfers(graph: Graph, rows: Longs) -> None:
    lanes = graph.lanes
    streams = (lanes["kind"] == "stream") & (lanes["role"] == "communication")
    carries = ((lanes["kind"] == "link") | streams).to_numpy(bool)
    for row in rows[~carries[rows]]:
        raise GraphError(
            f"network: lane {row} ({lanes['kind'].iloc[row]}) carries no transfers; links and"
            " streams of role communication do"
        )


def _arrivals(graph: Graph, network: Network) -> None:
    """Refuse a collective that waits for some ranks of its lane's members, but not for all."""
    lane, rank = network.columns("members")
    edges = graph.edges[(graph.edges["kind"] == "collective").to_numpy(bool)]
    if not len(lane) or not len(edges):
        return
    src, dst = (edges[end].to_numpy() for end in ("src", "dst"))
    task_lane = graph.tasks["lane"].to_numpy()
    comes_from = graph.lanes.iloc[task_lane[src]]
    on_link = (comes_from["kind"] == "link").to_numpy(bool)
    meets = ((graph.tasks["kind"] == "collective").to_numpy(bool)[dst]) & ~on_link
    arrived = pd.DataFrame({"task": dst[meets], "rank": comes_from["rank"].to_numpy()[meets]})
    tasks = arrived["task"].unique()
    awaited = pd.DataFrame({"task": tasks, "lane": task_lane[tasks]}).merge(
        pd.DataFrame({"lane": lane, "rank": rank}), on="lane"
    )
    both = awaited.merge(arrived.drop_duplicates(), on=["task", "rank"], how="left", indicator=True)
    missing = both[(both["_merge"] == "left_only").to_numpy()]
    for task in missing["task"].head(1):
        absent = missing["rank"][missing["task"] == task]
        present = arrived["rank"][arrived["task"] == task]
        name = graph.tasks["name"].iloc[task]
        raise GraphError(
            f"collective {name!r} (task {task}): {listed_ranks(present)} would wait forever for"
            f" {listed_ranks(absent)}"
        )


def listed_ranks(numbers: Sequence[int] | Any) -> str:
    """Return ranks for an error text, shortened.

    >>> listed_ranks([3, 1, 3]), listed_ranks(range(9)), listed_ranks([2])
    ('ranks 1, 3', 'ranks 0, 1, 2, 3 and 5 more', 'rank 2')
    """
    each = sorted({int(number) for number in numbers})
    text = ", ".join(str(number) for number in each[:SPELLED])
    more = f" and {len(each) - SPELLED} more" if len(each) > SPELLED else ""
    return f"rank{'s' * (len(each) > 1)} {text}{more}"
