"""Communication put into a graph: transfers on a link or on a communication stream.

On a device a transfer runs on a stream of its own, launched by a call, and streams wait for each
other. On a CPU it runs on a link: a host task issues it, and another one waits for its end.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from foretrace.transforms.edit.columns import Mask, Rows, append, is_in
from foretrace.transforms.edit.primitives import chain, edge_rows, insert
from foretrace.transforms.edit.select import call_of

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

WAIT = "wait for communication"
"""Name of the host tasks that wait for transfers."""
ISSUE = "issue communication"
"""Name of the host tasks that issue them, where they have no other."""


def add_lane(graph: Graph, *, kind: str = "link", device: int = -1) -> tuple[Graph, int]:
    """Return *graph* with one more lane for communication, and its row.

    Parameters
    ----------
    graph
        The job of one rank.
    kind
        "link", or "stream" of *device*.
    device
        Number of the device; −1 for a link.
    """
    values = {
        "kind": kind,
        "device": device,
        "id": int(graph.lanes["id"].max()) + 1,
        "role": "communication",
    }
    lanes = append(graph.lanes, np.zeros(1, np.int64), values)
    return replace(graph, lanes=lanes), len(graph.lanes)


def device_of(graph: Graph, row: int) -> int:
    """Return the number of the device that a task runs on."""
    return int(graph.lanes["device"].iloc[graph.tasks["lane"].iloc[row]])


def send(
    graph: Graph,
    lane: int,
    ready: Rows,
    *,
    calls: Rows | None = None,
    call: str = ISSUE,
    call_ns: int | None = None,
    **columns: Any,
) -> tuple[Graph, Rows]:
    """Run one new transfer per entry of *ready* on *lane*, in that order.

    Parameters
    ----------
    graph
        The job of one rank.
    lane
        A lane with no tasks yet.
    ready
        Tasks at whose end the data is there.
    calls
        Host tasks after which the transfers are issued; by default *ready* itself, or what launched
        it. A transfer that nothing launched (−1) is not issued either.
    call, call_ns
        As `issue` takes them.
    **columns
        As `put` takes them.

    Returns
    -------
    tuple
        The new graph and the rows of the transfers.

    Examples
    --------
    >>> from foretrace.graph.literal import literal
    >>> graph = literal([("backward", "host", 0, 5, "backward"), ("next", "host", 0, 9, None)])
    >>> graph, link = add_lane(graph)
    >>> graph, rows = send(
    ...     graph, link, np.array([0]), call_ns=2, name="all_reduce", work_ns=70, bytes=64.0,
    ...     cost="table",
    ... )
    >>> graph = wait(graph, rows, np.array([1]))
    >>> graph.tasks[["name", "lane", "work_ns"]].values.tolist()[2:]
    [['all_reduce', 1, 70], ['issue communication', 0, 2], ['wait for communication', 0, 0]]
    """
    graph, rows = put(graph, lane, ready, **columns)
    on_stream = _is_stream(graph, rows).any()
    if calls is None:
        calls = call_of(graph)[ready] if on_stream else ready
    if on_stream:
        graph = replace(graph, edges=edge_rows(graph.edges, ready, rows, "event", 0))
    return issue(graph, rows, calls, call=call, call_ns=call_ns), rows


def put(graph: Graph, lane: int, like: Rows, **columns: Any) -> tuple[Graph, Rows]:
    """Add one transfer per entry of *like* to *lane*, in that order; nothing starts them yet.

    *columns* are task columns of the transfers: ``name``, ``work_ns``, ``bytes`` and ``cost`` at
    least; step and module are those of *like*.
    """
    rows = len(graph.tasks) + np.arange(len(like), dtype=np.int64)
    blank = {"duration_ns": 0, "operator": -1, "flops": np.nan, "blocks": -1, "fill": np.nan}
    quiet = {"wait": "none", "wait_lane": -1, "return_ns": 0, "lock": -1, "lane": lane}
    usual = {"kind": "collective", "phase": "communication"}
    tasks = append(graph.tasks, like, {**blank, **quiet, **usual, **columns})
    edges = edge_rows(graph.edges, rows[:-1], rows[1:], "stream", 0)
    edges = edge_rows(edges, rows[-1:], rows[:1], "stream", 0, 1)
    return replace(graph, tasks=tasks, edges=edges), rows


def issue(
    graph: Graph,
    transfers: Rows,
    calls: Rows,
    *,
    place: str = "after",
    call: str = ISSUE,
    call_ns: int | None = None,
) -> Graph:
    """Start each transfer by a new host task beside the one of *calls* (−1: by none).

    Parameters
    ----------
    graph
        The job with its transfers.
    transfers, calls
        Rows of tasks, one pair per entry.
    place
        "after" the tasks of *calls*, or "before" them.
    call, call_ns
        Name and cost of the new tasks; by default the cost of a launch. On a link a transfer starts
        no earlier than they end, on a device than a launch takes effect.
    """
    has_call = calls >= 0
    if not has_call.any():
        return graph
    cost = graph.platform.launch_ns if call_ns is None else call_ns
    graph, issued = insert(
        graph, calls[has_call], place=place, kind="launch", name=call, work_ns=cost, cost="prior"
    )
    on_stream = _is_stream(graph, transfers[has_call])
    lag = np.where(on_stream, graph.platform.launch_latency_ns, cost)
    return replace(graph, edges=edge_rows(graph.edges, issued, transfers[has_call], "launch", lag))


def wait(
    graph: Graph,
    transfers: Rows,
    by: Rows,
    *,
    shift: int | Rows = 0,
    return_ns: int = 0,
) -> Graph:
    """Let each of *by* start only when the transfer beside it has ended.

    Parameters
    ----------
    graph
        The job with its transfers.
    transfers, by
        Rows of tasks, one pair per entry; −1 on either side stands for nothing. A host task that
        occurs several times waits once, for all of them.
    shift
        1 where the waiting task is one of the next repetition of the window.
    return_ns
        Time from the end of the last transfer to the return of a waiting host task.
    """
    shift = np.broadcast_to(np.asarray(shift, np.int64), len(by))
    both = (transfers >= 0) & (by >= 0)
    transfers, by, shift = transfers[both], by[both], shift[both]
    on_host = is_in(graph.lanes["kind"], "thread", "loader")[graph.tasks["lane"].to_numpy()[by]]
    free = ~on_host
    edges = edge_rows(graph.edges, transfers[free], by[free], "event", 0, shift[free])
    graph = replace(graph, edges=edges)
    hosts, which = np.unique(by[on_host], return_inverse=True)
    if not len(hosts):
        return graph
    graph, waits = insert(
        graph, hosts, place="before", name=WAIT, kind="sync", work_ns=0, cost="prior"
    )
    edges = edge_rows(
        graph.edges, transfers[on_host], waits[which], "return", return_ns, shift[on_host]
    )
    return replace(graph, edges=edges)


def block(
    graph: Graph, transfers: Rows, issued: Rows | None = None, *, return_ns: int = 0
) -> tuple[Graph, Rows]:
    """Let the host wait for each transfer right where it was issued; also return the new tasks.

    With *issued*, where the transfer beside it was issued. It returns *return_ns* after the end.
    """
    calls = call_of(graph)[transfers if issued is None else issued]
    graph, waits = insert(graph, calls, name=WAIT, kind="sync", work_ns=0, cost="prior")
    edges = edge_rows(graph.edges, transfers, waits, "return", return_ns)
    return replace(graph, edges=edges), waits


def before(graph: Graph, rows: Rows) -> tuple[Rows, Rows]:
    """Return the task before each of *rows* on its lane, and how many repetitions earlier it lies.

    −1 stands for none.
    """
    return _neighbour(graph, chain(graph)[0][rows], "src")


def after(graph: Graph, rows: Rows) -> tuple[Rows, Rows]:
    """Return the task after each of *rows* on its lane, and how many repetitions later it lies.

    −1 stands for none.
    """
    return _neighbour(graph, chain(graph)[1][rows], "dst")


def _neighbour(graph: Graph, edge: Rows, end: str) -> tuple[Rows, Rows]:
    rows, shift = (graph.edges[column].to_numpy().astype(np.int64) for column in (end, "shift"))
    return np.append(rows, -1)[edge], np.append(shift, 0)[edge]


def _is_stream(graph: Graph, rows: Rows) -> Mask:
    return is_in(graph.lanes["kind"], "stream")[graph.tasks["lane"].to_numpy()[rows]]


def communicates(graph: Graph) -> Mask:
    """Tell which tasks are transfers: on a link, or collectives and sends on a stream."""
    on_link = is_in(graph.lanes["kind"], "link")[graph.tasks["lane"].to_numpy()]
    return on_link | is_in(graph.tasks["kind"], "collective", "p2p")
