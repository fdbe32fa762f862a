"""Communication put into a graph: transfers on a link or on a communication stream.

On a device a transfer runs on a stream of its own, launched by a call, and streams wait for each
other. On a CPU it runs on a link: a host task issues it, and another one waits for its end.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from foretrace.transforms.columns import Rows, append, is_in
from foretrace.transforms.primitives import edge_rows, insert
from foretrace.transforms.side_streams import call_of

if TYPE_CHECKING:
    import numpy.typing as npt

    from foretrace.graph.model import Graph

WAIT = "wait for communication"
"""Name of the host tasks that wait for transfers."""


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


def send(
    graph: Graph,
    lane: int,
    ready: Rows,
    *,
    calls: Rows | None = None,
    call: str = "issue communication",
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
        Name and cost of the host tasks that issue; by default the cost of a launch. A transfer
        starts no earlier than they end, on a device than they take effect.
    **columns
        Task columns of the transfers: ``name``, ``work_ns``, ``bytes`` and ``cost`` at least.

    Returns
    -------
    tuple
        The new graph and the rows of the transfers.

    Examples
    --------
    >>> from foretrace.transforms.literal import literal
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
    count = len(graph.tasks)
    rows = count + np.arange(len(ready), dtype=np.int64)
    on_stream = graph.lanes["kind"].iat[lane] == "stream"
    blank = {"duration_ns": 0, "operator": -1, "flops": np.nan, "blocks": -1, "fill": np.nan}
    quiet = {"wait": "none", "wait_lane": -1, "return_ns": 0, "lock": -1, "lane": lane}
    usual = {"kind": "collective", "phase": "communication"}
    tasks = append(graph.tasks, ready, {**blank, **quiet, **usual, **columns})
    edges = edge_rows(graph.edges, rows[:-1], rows[1:], "stream", 0)
    edges = edge_rows(edges, rows[-1:], rows[:1], "stream", 0, 1)
    if calls is None:
        calls = call_of(graph)[ready] if on_stream else ready
    if on_stream:
        edges = edge_rows(edges, ready, rows, "event", 0)
    cost = graph.platform.launch_ns if call_ns is None else call_ns
    known = calls >= 0
    graph, issued = insert(
        replace(graph, tasks=tasks, edges=edges),
        calls[known],
        kind="launch",
        name=call,
        work_ns=cost,
        cost="prior",
    )
    lag = graph.platform.launch_latency_ns if on_stream else cost
    return replace(graph, edges=edge_rows(graph.edges, issued, rows[known], "launch", lag)), rows


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
    known = (transfers >= 0) & (by >= 0)
    transfers, by, shift = transfers[known], by[known], shift[known]
    kind = graph.lanes["kind"].array[graph.tasks["lane"].to_numpy()[by]]
    streams = np.asarray(kind == "stream", bool)
    edges = edge_rows(
        graph.edges, transfers[streams], by[streams], "event", 0, shift[streams]
    )
    graph = replace(graph, edges=edges)
    hosts, which = np.unique(by[~streams], return_inverse=True)
    graph, waits = insert(
        graph, hosts, place="before", name=WAIT, kind="sync", work_ns=0, cost="prior"
    )
    edges = edge_rows(
        graph.edges, transfers[~streams], waits[which], "return", return_ns, shift[~streams]
    )
    return replace(graph, edges=edges)


def communicates(graph: Graph) -> npt.NDArray[np.bool_]:
    """Tell which tasks are transfers: on a link, or collectives on a stream."""
    lane = graph.tasks["lane"].to_numpy()
    on_link = is_in(graph.lanes["kind"], "link")[lane]
    return on_link | is_in(graph.tasks["kind"], "collective", "p2p")
