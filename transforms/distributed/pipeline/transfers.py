"""What the ranks of a pipeline send one another: activations forward, gradients backward.

In: the ranks' graph and where each of its parts runs. Out: the graph with a transfer for each
micro-batch and boundary, and with the reduction of gradients over replicas.

On devices nobody's host waits: a transfer starts when its data is there and the receiver has
finished the computation before it of the same direction; sends delay nothing. Over gloo hosts send
and receive: a receive blocks; forward, data leaves when the receiver asks for it, backward as soon
as it is sent; a send blocks if it is said to.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from foretrace.graph.shared_links import Network
from foretrace.transforms.distributed.common.link_credit import spend_credit
from foretrace.transforms.distributed.common.unfold_ranks import follow_in_turn
from foretrace.transforms.distributed.pipeline.partition import FIRST, TAIL
from foretrace.transforms.edit.columns import Rows, append
from foretrace.transforms.edit.primitives import edge_rows, insert

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from foretrace.graph.model import Graph
    from foretrace.transforms.collectives.cost import Cost
    from foretrace.transforms.distributed.pipeline.assembly import AssembledRanks, PartRun

SEND, RECEIVE = "send", "receive"
NAMES = {"forward": "send activations (predicted)", "backward": "send gradients (predicted)"}
REDUCE = "all_reduce of gradients (predicted)"
WAIT = "wait for all_reduce"
CALL = "ncclGroupEnd"
"""Name of the calls that issue a transfer on a device."""
ON_HOST: dict[str, Any] = {
    "kind": "host",
    "work_ns": 0,
    "cost": "prior",
    "phase": "communication",
}
"""Hosts that send, receive and wait cost nothing beside that; gloo's own time is the transfer's."""


@dataclass(frozen=True)
class Sending:
    """How pieces hand on: per boundary the bytes of a micro-batch, and its cost by direction.

    After a pause a link lends ``credit_ns`` of its time; a host that waits for a message returns
    ``wake_ns`` after its end.

    ``blocking`` says whether a host waits until what it sends forward is taken; ``shares`` are the
    speeds of computing beside transfers and of transfers beside computing.
    """

    sizes: Sequence[int]
    costs: Mapping[str, Sequence[Cost]]
    on_device: bool
    blocking: bool
    shares: tuple[float, float] = (1.0, 1.0)
    credit_ns: float = 0.0
    wake_ns: int = 0


class _Transfer(NamedTuple):
    """One transfer: who sends, who receives, and what the receiver computed before it that way."""

    direction: str
    boundary: int
    sender: PartRun
    receiver: PartRun
    before: PartRun | None


def connect(assembled: AssembledRanks, sending: Sending) -> Graph:
    """Return the ranks' graph with all transfers between them."""
    transfers = _transfers(assembled.runs)
    graph, rows = _with_transfers(assembled.graph, transfers, sending)
    if not transfers:
        return graph
    if sending.on_device:
        graph = _on_device(graph, rows, transfers)
    else:
        graph = _on_host(graph, rows, transfers, sending)
        if not sending.blocking:
            graph = _before_update(graph, rows, transfers, assembled.runs)
    return _shared_links(graph, rows, transfers, sending)


def _transfers(runs: Iterable[PartRun]) -> list[_Transfer]:
    """Pair the runs of a piece with those of the next, in the order in which they are sent."""
    passes = {(r.step, r.part, r.micro_batch): r for r in runs if r.part >= FIRST}
    before: dict[PartRun, PartRun] = {}
    last: dict[tuple[int, int, int], PartRun] = {}
    for run in passes.values():
        key = run.rank, run.step, (run.part - FIRST) % 2
        if key in last:
            before[run] = last[key]
        last[key] = run
    transfers = []
    for run in passes.values():
        piece, is_backward = divmod(run.part - FIRST, 2)
        onward = -1 if is_backward else 1
        receiver = passes.get((run.step, run.part + 2 * onward, run.micro_batch))
        if receiver is not None and receiver.rank != run.rank:
            direction = "backward" if is_backward else "forward"
            boundary = piece - 1 if is_backward else piece
            transfers.append(_Transfer(direction, boundary, run, receiver, before.get(receiver)))
    return transfers


def _with_transfers(
    graph: Graph, transfers: Sequence[_Transfer], sending: Sending
) -> tuple[Graph, Rows]:
    """Add the transfers, those of one sender and direction one after another on a link."""
    keys = [(each.sender.rank, each.direction) for each in transfers]
    links = {key: len(graph.lanes) + at for at, key in enumerate(dict.fromkeys(keys))}
    lane = np.array([links[key] for key in keys], np.int64)
    columns = {
        "name": pd.Categorical([NAMES[each.direction] for each in transfers]),
        "kind": "p2p",
        "lane": lane,
        "work_ns": _work_ns(graph, transfers, sending),
        "bytes": [float(sending.sizes[each.boundary]) for each in transfers],
        "cost": pd.Categorical(
            [sending.costs[each.direction][each.boundary].source for each in transfers]
        ),
    }
    like = np.array([each.sender.last for each in transfers], np.int64)
    return _on_links(graph, like, [rank for rank, _ in links], columns)


def _work_ns(graph: Graph, transfers: Sequence[_Transfer], sending: Sending) -> Rows:
    """Return how long each transfer occupies its link; ranks pause at least while they compute."""
    work = np.array([sending.costs[t.direction][t.boundary].ns for t in transfers], np.float64)
    if sending.credit_ns:
        sender = np.array([each.sender.rank for each in transfers])
        sent_at = graph.tasks["start_ns"].to_numpy()[_last_hosts(transfers)]
        for rank in np.unique(sender):
            mine = sender == rank
            work[mine] = spend_credit(work[mine], sent_at[mine], sending.credit_ns)
    return np.rint(work).astype(np.int64)


def _on_links(
    graph: Graph, like: Rows, ranks: Sequence[int], columns: dict[str, Any]
) -> tuple[Graph, Rows]:
    """Add a link per entry of *ranks* and the communication of *columns*, in order on each link."""
    rows = len(graph.tasks) + np.arange(len(like), dtype=np.int64)
    if not len(like):
        return graph, rows
    blank = {"duration_ns": 0, "operator": -1, "flops": np.nan, "blocks": -1, "fill": np.nan}
    quiet = {"wait": "none", "wait_lane": -1, "return_ns": 0, "lock": -1}
    tasks = append(graph.tasks, like, {**blank, **quiet, "phase": "communication", **columns})
    number = int(graph.lanes["id"].max()) + 1 + np.arange(len(ranks))
    values = {"kind": "link", "rank": ranks, "device": -1, "id": number, "role": "communication"}
    lanes = append(graph.lanes, np.zeros(len(ranks), np.int64), values)
    before, order, wraps = follow_in_turn(columns["lane"])
    edges = edge_rows(graph.edges, rows[before], rows[order], "thread", 0, wraps)
    return replace(graph, tasks=tasks, edges=edges, lanes=lanes), rows


def _on_device(graph: Graph, rows: Rows, transfers: Sequence[_Transfer]) -> Graph:
    """Let streams wait for transfers and transfers for streams; hosts only issue them."""
    posted = np.array([each.before is not None for each in transfers])
    previous = [each.before.last for each in transfers if each.before is not None]
    edges = graph.edges
    for src, dst in (
        ([each.sender.last for each in transfers], rows),
        (previous, rows[posted]),
        (rows, [each.receiver.first for each in transfers]),
    ):
        edges = edge_rows(edges, np.asarray(src, np.int64), np.asarray(dst, np.int64), "event", 0)
    graph = replace(graph, edges=edges)
    calls: dict[str, Any] = {
        "kind": "launch",
        "name": CALL,
        "work_ns": graph.platform.launch_ns,
        "cost": "prior",
    }
    graph, sends = insert(graph, _last_hosts(transfers), **calls)
    graph, receives = insert(graph, _first_hosts(transfers), place="before", **calls)
    lag = graph.platform.launch_latency_ns
    edges = edge_rows(graph.edges, sends, rows, "launch", lag)
    edges = edge_rows(edges, receives, rows, "collective", lag)
    return replace(graph, edges=edges)


def _on_host(graph: Graph, rows: Rows, transfers: Sequence[_Transfer], sending: Sending) -> Graph:
    """Let hosts send and receive."""
    graph, sends = insert(graph, _last_hosts(transfers), name=SEND, **ON_HOST)
    graph, receives = insert(
        graph, _first_hosts(transfers), place="before", name=RECEIVE, **ON_HOST
    )
    forward = np.array([each.direction == "forward" for each in transfers])
    edges = edge_rows(graph.edges, sends, rows, "collective", 0)
    edges = edge_rows(edges, receives[forward], rows[forward], "collective", 0)
    edges = edge_rows(edges, rows, receives, "return", sending.wake_ns)
    if sending.blocking:
        edges = edge_rows(edges, rows[forward], sends[forward], "return", 0)
    return replace(graph, edges=edges)


def _before_update(
    graph: Graph, rows: Rows, transfers: Sequence[_Transfer], runs: Iterable[PartRun]
) -> Graph:
    """Let each rank begin its update when all it sent in the step is gone (`isend`'s waits)."""
    updates = {(run.rank, run.step): run.first_host for run in runs if run.part == TAIL}
    ends = np.array([updates.get((t.sender.rank, t.sender.step), -1) for t in transfers], np.int64)
    has_update = ends >= 0
    return replace(
        graph, edges=edge_rows(graph.edges, rows[has_update], ends[has_update], "join", 0)
    )


def _last_hosts(transfers: Sequence[_Transfer]) -> Rows:
    return np.array([each.sender.last_host for each in transfers], np.int64)


def _first_hosts(transfers: Sequence[_Transfer]) -> Rows:
    return np.array([each.receiver.first_host for each in transfers], np.int64)


def _shared_links(
    graph: Graph, rows: Rows, transfers: Sequence[_Transfer], sending: Sending
) -> Graph:
    """Let transfers share links, and slow computing, where they can meet there at all."""
    lane = graph.tasks["lane"].to_numpy()[rows].tolist()
    uses: dict[tuple[int, str], float] = {}
    ranks: dict[int, set[int]] = defaultdict(set)
    for at, each in zip(lane, transfers, strict=True):
        ranks[at] |= {each.sender.rank, each.receiver.rank}
        for link, use in sending.costs[each.direction][each.boundary].uses:
            uses[at, link] = max(uses.get((at, link), 0.0), use)
    asked: dict[str, float] = defaultdict(float)
    for (_, link), use in uses.items():
        asked[link] += use
    if max(asked.values(), default=0.0) <= 1 and sending.shares == (1.0, 1.0):
        return graph
    names = tuple(asked)
    network = Network(
        links=names,
        routes=tuple((at, names.index(link), min(use, 1.0)) for (at, link), use in uses.items()),
        compute_share=sending.shares[0],
        transfer_share=sending.shares[1],
        slowed=("kernel",) if sending.on_device else ("host",),
        members=tuple((at, rank) for at, those in ranks.items() for rank in sorted(those)),
    )
    return graph.with_state(network=network)


def reduce_gradients(
    graph: Graph,
    assembled: AssembledRanks,
    costs: Sequence[Cost],
    sizes: Sequence[int],
    *,
    on_device: bool,
) -> Graph:
    """Reduce each rank's gradients over its replicas, between its last pass and its update.

    *costs* and *sizes* are per rank; replicas are alike, so one stands for all.
    """
    passes = {(run.rank, run.step): run for run in assembled.runs if run.part >= FIRST}
    tails = [run for run in assembled.runs if run.part == TAIL]
    ends = [passes[run.rank, run.step] for run in tails]
    rank = np.array([run.rank for run in tails], np.int64)
    like = np.array([run.last for run in ends], np.int64)
    columns = {
        "name": REDUCE,
        "kind": "collective",
        "lane": len(graph.lanes) + rank,
        "work_ns": np.array([cost.ns for cost in costs])[rank],
        "bytes": np.asarray(sizes)[rank],
        "cost": pd.Categorical([costs[at].source for at in rank.tolist()]),
    }
    graph, rows = _on_links(graph, like, range(len(costs)), columns)
    if on_device:
        edges = edge_rows(graph.edges, like, rows, "event", 0)
        first = np.array([run.first for run in tails], np.int64)
        return replace(graph, edges=edge_rows(edges, rows, first, "event", 0))
    first = np.array([run.first_host for run in tails], np.int64)
    graph, waits = insert(graph, first, place="before", name=WAIT, **ON_HOST)
    edges = edge_rows(graph.edges, waits, rows, "collective", 0)
    return replace(graph, edges=edge_rows(edges, rows, waits, "return", 0))
