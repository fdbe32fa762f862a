"""The definition of a valid graph, and of a network that fits it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from foretrace.errors import GraphError
from foretrace.graph.model import (
    COSTS,
    DEVICE_KINDS,
    EDGE_COLUMNS,
    EDGE_KINDS,
    LANE_COLUMNS,
    LANE_KINDS,
    OPERATOR_COLUMNS,
    PHASES,
    TASK_COLUMNS,
    TASK_KINDS,
    WAITS,
    Graph,
)
from foretrace.util.schema import require

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from foretrace.graph.shared_links import Network

    Longs = NDArray[np.int64]

LEAST_SHARE = 1e-6
"""A speed below this would make nanoseconds overflow before a task ends."""
SPELLED = 4
"""How many ranks an error names at most."""


def check(graph: Graph, valid: Graph | None = None) -> Graph:
    """Return *graph* if it holds every invariant.

    What it shares with *valid*, a checked graph of which it is an edit, needs no second look.

    Raises
    ------
    GraphError
        Naming the column, task or edge that breaks one: missing columns, unknown categories, ids
        out of range, negative times, an edge that points at itself, order edges that branch or
        leave their lane, launches of something that is no device task, a route or a share of the
        network that makes no sense, a rank that never arrives at a collective of its group.
    """
    require(graph.tasks, TASK_COLUMNS, GraphError, "tasks")
    require(graph.edges, EDGE_COLUMNS, GraphError, "edges")
    require(graph.lanes, LANE_COLUMNS, GraphError, "lanes")
    require(graph.operators, OPERATOR_COLUMNS, GraphError, "operators")
    for table, column, values in _VALUES:
        _check_values(getattr(graph, table), column, values)
    as_many = valid is not None and _have_equal_sizes(graph, valid)
    for table, column, low, limit in _RANGES:
        high = None if limit is None else len(getattr(graph, limit))
        old = getattr(valid, table) if as_many else None
        _check_range(getattr(graph, table), column, low, high, old)
    if graph.steps < 1:
        raise GraphError(f"a graph has at least 1 step, not {graph.steps}")
    same_edges = valid is not None and as_many and _have_same_edges(graph, valid)
    if not same_edges:
        _check_edges(graph)
    network = graph.state.network
    same_network = (
        same_edges
        and valid is not None
        and graph.lanes is valid.lanes
        and network is valid.state.network
    )
    if network is not None and not same_network:
        _check_network(graph, network)
    return graph


_VALUES = (
    ("tasks", "kind", TASK_KINDS),
    ("tasks", "phase", PHASES),
    ("tasks", "wait", WAITS),
    ("tasks", "cost", COSTS),
    ("edges", "kind", tuple(EDGE_KINDS)),
    ("lanes", "kind", LANE_KINDS),
)
_RANGES = (
    ("tasks", "lane", 0, "lanes"),
    ("tasks", "wait_lane", -1, "lanes"),
    ("tasks", "operator", -1, "operators"),
    ("tasks", "work_ns", 0, None),
    ("tasks", "duration_ns", 0, None),
    ("edges", "src", 0, "tasks"),
    ("edges", "dst", 0, "tasks"),
    ("edges", "shift", 0, None),
)
"""Table, column, lowest value, and the table whose length limits it."""


def _have_equal_sizes(graph: Graph, valid: Graph) -> bool:
    return all(
        len(getattr(graph, table)) == len(getattr(valid, table))
        for table in ("tasks", "lanes", "operators")
    )


def _have_same_edges(graph: Graph, valid: Graph) -> bool:
    """Tell whether the edges, and what is asked of the tasks at their ends, are the same."""
    of_edges = (column.name for column in EDGE_COLUMNS if column.name != "rule")
    return all(_shares_memory(graph.edges[c], valid.edges[c]) for c in of_edges) and all(
        _shares_memory(graph.tasks[c], valid.tasks[c]) for c in ("lane", "kind")
    )


def _shares_memory(one: pd.Series, other: pd.Series) -> bool:
    """Tell whether two columns are the same values in the same memory, as unedited ones are."""
    values: list[NDArray[np.generic]] = []
    for column in (one, other):
        array = column.array
        values.append(np.asarray(array.codes if hasattr(array, "codes") else array))
    if hasattr(one.array, "codes") and one.array.categories is not other.array.categories:
        return False
    return bool(values[0].__array_interface__ == values[1].__array_interface__)


def _check_values(frame: pd.DataFrame, column: str, values: Sequence[str]) -> None:
    coded = frame[column].array
    if set(coded.categories) <= set(values):
        return
    used = np.flatnonzero(np.bincount(coded.codes.astype(np.int64) + 1)[1:])
    strange = [each for each in coded.categories[used] if each not in values]
    if strange:
        raise GraphError(f"{column} {strange[0]!r} is unknown, expected one of {', '.join(values)}")


def _check_range(
    frame: pd.DataFrame, column: str, low: int, high: int | None, valid: pd.DataFrame | None
) -> None:
    if valid is not None and _shares_memory(frame[column], valid[column]):
        return
    values = frame[column].to_numpy()
    wrong = values < low if high is None else (values < low) | (values >= high)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise GraphError(f"row {row}: {column} is {values[row]}, out of range")


def _check_edges(graph: Graph) -> None:
    edges = graph.edges
    src, dst, shift, lag_ns = (edges[name].to_numpy() for name in ("src", "dst", "shift", "lag_ns"))
    same = np.flatnonzero(src == dst)
    for row in same[shift[same] == 0]:
        raise GraphError(f"task {src[row]} has an edge to itself")
    early = np.flatnonzero(lag_ns < 0)
    for row in early[~_is(edges["kind"], "return")[early]]:
        kind = edges["kind"].iloc[row]
        raise GraphError(f"edge {row} ({kind}) has a negative lag; only return edges may")
    lane = graph.tasks["lane"].to_numpy()
    order = np.flatnonzero(_is(edges["kind"], "thread", "stream"))
    for row in order[lane[src[order]] != lane[dst[order]]]:
        lanes = f"{lane[src[row]]} and {lane[dst[row]]}"
        raise GraphError(f"edge {row} orders tasks of two lanes, {lanes}")
    for name, ends in (("successors", src), ("predecessors", dst)):
        count = np.bincount(ends[order], minlength=1)
        if count.max() > 1:
            raise GraphError(f"task {int(np.argmax(count > 1))} has several {name} on its lane")
    on_device = _is(graph.tasks["kind"], *DEVICE_KINDS)
    launch = np.flatnonzero(_is(edges["kind"], "launch"))
    for row in launch[on_device[src[launch]] | ~on_device[dst[launch]]]:
        raise GraphError(
            f"edge {row} launches task {dst[row]}, which is no device task, or from one"
        )


def _is(column: pd.Series, *values: str) -> NDArray[np.bool_]:
    flags: NDArray[np.bool_] = np.append(column.array.categories.isin(values), [False])[
        column.array.codes
    ]
    return flags


def _check_network(graph: Graph, network: Network) -> None:
    """Raise `GraphError` unless *network* fits the lanes and tasks of *graph*."""
    for name in ("compute_share", "transfer_share"):
        share = getattr(network, name)
        if not LEAST_SHARE <= share <= 1:
            raise GraphError(f"network: {name} is {share}, expected above 0 and at most 1")
    for kind in network.slowed:
        if kind not in TASK_KINDS:
            kinds = ", ".join(TASK_KINDS)
            raise GraphError(f"network: kind {kind!r} is unknown, expected one of {kinds}")
    _check_routes(graph, network)
    _check_members(graph, network)
    _check_arrivals(graph, network)


def _check_routes(graph: Graph, network: Network) -> None:
    lane, link, use = network.columns("routes")
    _check_rows("route", "lane", lane, len(graph.lanes))
    _check_rows("route", "link", link, len(network.links))
    for at in np.flatnonzero(~((use > 0) & (use <= 1))):
        raise GraphError(
            f"network: route {at} takes {use[at]} of its link, expected above 0 and at most 1"
        )
    _check_carriers(graph, lane)
    for at in np.flatnonzero(pd.DataFrame({"lane": lane, "link": link}).duplicated()):
        raise GraphError(
            f"network: lane {lane[at]} has two routes over link {network.links[link[at]]!r}"
        )


def _check_members(graph: Graph, network: Network) -> None:
    lane, rank = network.columns("members")
    _check_rows("member", "lane", lane, len(graph.lanes))
    _check_carriers(graph, lane)
    for at in np.flatnonzero(~np.isin(rank, graph.lanes["rank"])):
        raise GraphError(f"network: member {at} is rank {rank[at]}, which has no lane")


def _check_rows(what: str, column: str, rows: Longs, limit: int) -> None:
    for at in np.flatnonzero((rows < 0) | (rows >= limit)):
        raise GraphError(f"network: {what} {at} names {column} {rows[at]}, out of range")


def _check_carriers(graph: Graph, rows: Longs) -> None:
    lanes = graph.lanes
    streams = (lanes["kind"] == "stream") & (lanes["role"] == "communication")
    carries = ((lanes["kind"] == "link") | streams).to_numpy(bool)
    for row in rows[~carries[rows]]:
        raise GraphError(
            f"network: lane {row} ({lanes['kind'].iloc[row]}) carries no transfers; links and"
            " streams of role communication do"
        )


def _check_arrivals(graph: Graph, network: Network) -> None:
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
            f"collective {name!r} (task {task}): {list_ranks(present)} would wait forever for"
            f" {list_ranks(absent)}"
        )


def list_ranks(numbers: Sequence[int] | Any) -> str:
    """Return ranks for an error text, shortened.

    >>> list_ranks([3, 1, 3]), list_ranks(range(9)), list_ranks([2])
    ('ranks 1, 3', 'ranks 0, 1, 2, 3 and 5 more', 'rank 2')
    """
    each = sorted({int(number) for number in numbers})
    text = ", ".join(str(number) for number in each[:SPELLED])
    more = f" and {len(each) - SPELLED} more" if len(each) > SPELLED else ""
    return f"rank{'s' * (len(each) > 1)} {text}{more}"
