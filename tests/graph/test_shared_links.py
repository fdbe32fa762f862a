"""A network beside a graph: which lanes carry transfers, and what a valid one says."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from foretrace.errors import GraphError
from foretrace.graph.check import check
from foretrace.graph.literal import literal
from foretrace.graph.shared_links import Network
from tests.support.jobs.shared_links import job, kernel, transfer

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

NETWORK = Network(("nic", "uplink"), ((0, 0, 1.0), (1, 1, 0.5)), members=((1, 0), (1, 1)))


@pytest.fixture
def graph() -> Graph:
    """Return two transfer lanes (0, 1), a stream of rank 1 (2) and a thread of rank 0 (3)."""
    tasks = [transfer(0, 10), transfer(1, 10), kernel(2, 10), ("wait", "host", 3, 5, None)]
    return job(NETWORK, tasks, ranks=[0, 0, 1, 0])


def test_network_stays_beside_the_graph(graph: Graph) -> None:
    """Edits carry it; a graph without one has none."""
    assert replace(graph, notes=("edited",)).state.network is NETWORK
    assert graph.with_state(network=Network()).state.network == Network()
    assert literal([kernel(0, 10)]).state.network is None


def test_transfer_lanes_have_routes_or_members() -> None:
    """Each once, ascending."""
    assert NETWORK.transfer_lanes.tolist() == [0, 1]
    assert Network(members=((4, 0), (2, 1))).transfer_lanes.tolist() == [2, 4]
    assert Network().transfer_lanes.tolist() == []


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"compute_share": 0.0}, "compute_share is 0.0, expected above 0 and at most 1"),
        ({"transfer_share": 1.5}, "transfer_share is 1.5, expected above 0 and at most 1"),
        ({"compute_share": float("nan")}, "compute_share is nan"),
        ({"slowed": ("gpu",)}, "kind 'gpu' is unknown, expected one of host, launch"),
        ({"routes": ((9, 0, 1.0),)}, "route 0 names lane 9, out of range"),
        ({"routes": ((-1, 0, 1.0),)}, "route 0 names lane -1, out of range"),
        ({"routes": ((0, 0, 1.0), (0, 2, 1.0))}, "route 1 names link 2, out of range"),
        ({"routes": ((0, 0, 0.0),)}, "route 0 takes 0.0 of its link, expected above 0"),
        ({"routes": ((0, 0, 1.1),)}, "route 0 takes 1.1 of its link"),
        ({"routes": ((0, 0, float("nan")),)}, "route 0 takes nan of its link"),
        ({"routes": ((0, 0, 0.1), (0, 0, 0.2))}, "lane 0 has two routes over link 'nic'"),
        ({"routes": ((2, 0, 1.0),)}, r"lane 2 \(stream\) carries no transfers; links and streams"),
        ({"members": ((3, 0),)}, r"lane 3 \(thread\) carries no transfers"),
        ({"members": ((7, 0),)}, "member 0 names lane 7, out of range"),
        ({"members": ((1, 5),)}, "member 0 is rank 5, which has no lane"),
    ],
)
def test_network_that_makes_no_sense_is_refused(
    graph: Graph, changes: dict[str, Any], text: str
) -> None:
    """One sentence says what."""
    with pytest.raises(GraphError, match=f"^network: {text}"):
        check(graph.with_state(network=replace(NETWORK, **changes)))


def test_known_network_is_not_looked_at_again(graph: Graph) -> None:
    """Only where it, the lanes or the edges changed."""
    wrong = graph.with_state(network=Network(("nic",), ((0, 5, 1.0),)))

    assert check(wrong, wrong) is wrong
    with pytest.raises(GraphError, match="link 5"):
        check(wrong, graph)


def meeting(arrivals: tuple[int, ...]) -> Graph:
    """Return collectives of ranks 0 to 2 (lanes 0-2), of which some arrive at a transfer (3)."""
    tasks = [transfer(lane, 10, "all_reduce") for lane in range(3)] + [transfer(3, 10, "reduce")]
    network = Network(members=((3, 0), (3, 1), (3, 2)))
    edges = [(lane, 3, "collective") for lane in arrivals]
    return job(network, tasks, edges, ranks=[0, 1, 2, 0])


def test_member_that_never_arrives_is_named() -> None:
    """Ranks 0 and 1 would wait for rank 2."""
    with pytest.raises(
        GraphError,
        match=r"^collective 'reduce' \(task 3\): ranks 0, 1 would wait forever for rank 2$",
    ):
        meeting((0, 1))


def test_all_members_or_none_arrive() -> None:
    """A transfer that waits for nobody is timed by other edges."""
    assert len(meeting((0, 1, 2)).tasks) == len(meeting(()).tasks)
