"""Jobs whose lanes share links or slow each other, written down by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from foretrace.graph.check import check
from foretrace.graph.literal import literal
from foretrace.graph.shared_links import Network
from foretrace.replaying.engine.static import run
from foretrace.replaying.lower import lower

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foretrace.graph.model import Graph
    from foretrace.replaying.engine.schedule import Schedule

ONE_LINK = ("uplink",)


def transfer(lane: int, work: int, name: str = "all_reduce") -> tuple[str, str, int, int, None]:
    """Return a transfer that takes *work* ns alone."""
    return (name, "collective", lane, work, None)


def kernel(lane: int, work: int) -> tuple[str, str, int, int, None]:
    """Return a kernel."""
    return ("gemm", "kernel", lane, work, None)


def job(
    network: Network,
    tasks: Sequence[Any],
    edges: Sequence[Any] = (),
    *,
    ranks: Sequence[int] | None = None,
    **settings: Any,
) -> Graph:
    """Return a checked graph whose transfer lanes are streams for communication.

    *ranks* gives the rank of each lane; 0 unless told otherwise.
    """
    graph = literal(tasks, edges, **settings)
    roles = graph.lanes["role"].astype(object)
    roles.iloc[network.transfer_lanes] = "communication"
    lanes = graph.lanes.assign(role=roles.astype("category"))
    if ranks is not None:
        lanes = lanes.assign(rank=list(ranks)).astype({"rank": "int16"})
    return check(replace(graph, lanes=lanes).with_state(network=network))


def shared(*works: int, uses: Sequence[float] | None = None) -> Graph:
    """Return transfers that begin together, each on a lane of its own, over one link."""
    uses = uses or [1.0] * len(works)
    routes = tuple((lane, 0, use) for lane, use in enumerate(uses))
    tasks = [transfer(lane, work) for lane, work in enumerate(works)]
    return job(Network(ONE_LINK, routes), tasks)


def played(graph: Graph, repetitions: int = 1) -> Schedule:
    """Replay *graph* without looking for a steady state."""
    return run(lower(graph, repetitions))


def times(graph: Graph) -> list[tuple[int, int]]:
    """Return start and end of every task of one repetition."""
    schedule = played(graph)
    return list(zip(schedule.start_ns.tolist(), schedule.end_ns.tolist(), strict=True))


def added(schedule: Schedule) -> list[tuple[int, int]]:
    """Return what shared links, and what contention, added to each task."""
    contention = schedule.stretch_ns - schedule.link_ns
    return list(zip(schedule.link_ns.tolist(), contention.tolist(), strict=True))
