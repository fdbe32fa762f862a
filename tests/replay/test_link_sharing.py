"""From a network to groups of tasks with one rate: who shares, and who needs not be looked at."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from foretrace.graph.literal import literal
from foretrace.graph.shared_links import Network
from foretrace.replaying.link_sharing import is_transfer
from foretrace.replaying.lower import lower
from foretrace.replaying.replay import replay
from tests.support.jobs.shared_links import ONE_LINK, job, kernel, transfer

if TYPE_CHECKING:
    from foretrace.replaying.engine.program import Sharing


def sharing(*args: object, **settings: object) -> Sharing | None:
    """Return the groups of a job, see `tests.support.jobs.shared_links.job`."""
    return lower(job(*args, **settings), 1).sharing  # type: ignore[arg-type]


def pairs(found: Sharing) -> list[tuple[int, int]]:
    """Return each group with each of its neighbours."""
    first = found.first_neighbour.tolist()
    each = [found.neighbour[a:b].tolist() for a, b in pairwise(first)]
    return [(group, other) for group, others in enumerate(each) for other in others]


def test_without_a_network_nothing_is_shared() -> None:
    """Nor with an empty one."""
    graph = literal([kernel(0, 10)])

    assert lower(graph, 1).sharing is None
    assert lower(graph.with_state(network=Network()), 1).sharing is None


def test_kernels_of_a_communication_stream_are_no_transfers() -> None:
    """On a link, everything is; elsewhere nothing."""
    network = Network(("nic", "uplink"), ((0, 0, 1.0), (1, 1, 0.5)), members=((1, 0), (1, 1)))
    tasks = [transfer(0, 10), transfer(1, 10), kernel(2, 10), ("wait", "host", 3, 5, None)]
    graph = job(network, tasks, ranks=[0, 0, 1, 0])
    graph = replace(graph, tasks=graph.tasks.assign(lane=[0, 1, 1, 3]).astype({"lane": "int32"}))
    links = graph.lanes["kind"].astype(object)
    links.iloc[1] = "link"
    on_link = replace(graph, lanes=graph.lanes.assign(kind=links.astype("category")))

    assert is_transfer(graph, network).tolist() == [True, True, False, False]
    assert is_transfer(on_link, network).tolist() == [True, True, True, False]
    assert not is_transfer(literal([kernel(0, 10)]), Network()).any()


def test_groups_are_lanes_and_places() -> None:
    """Two transfer lanes, then the kernels of rank 0; the copy is nobody's."""
    network = Network(
        ("a", "b"), ((1, 0, 0.5), (0, 1, 1.0), (0, 0, 0.8)), compute_share=0.8, transfer_share=0.9
    )
    tasks = [transfer(0, 10), transfer(1, 10), kernel(2, 10), ("copy", "memcpy", 2, 10, None)]
    found = sharing(network, tasks)

    assert found is not None
    assert found.group.tolist() == [0, 1, 2, -1]
    assert found.share.tolist() == [0.9, 0.9, 0.8]
    assert found.first_route.tolist() == [0, 2, 3, 3]
    assert (found.link.tolist(), found.use.tolist()) == ([1, 0, 0], [1.0, 0.8, 0.5])
    assert (found.first_user.tolist(), found.user.tolist()) == ([0, 2, 3], [1, 0, 0])
    assert pairs(found) == [(0, 2), (1, 2), (2, 0), (2, 1)]


def test_link_with_room_for_all_is_left_out() -> None:
    """Lanes that run one thing at a time and take all of it together at most; not one ns more."""
    tasks = [transfer(0, 10), transfer(1, 10)]
    halves = ((0, 0, 0.5), (1, 0, 0.5))

    assert sharing(Network(ONE_LINK, halves), tasks, wrap=True) is None
    assert sharing(Network(ONE_LINK, halves), tasks) is not None  # windows might overlap
    more = ((0, 0, 0.5), (1, 0, 0.6))
    assert sharing(Network(ONE_LINK, more), tasks, wrap=True) is not None


def test_lane_without_tasks_takes_nothing() -> None:
    """Its route cannot make a link short."""
    routes = ((0, 0, 1.0), (1, 0, 1.0))
    graph = job(Network(ONE_LINK, routes), [transfer(0, 10), transfer(1, 10)], wrap=True)
    emptied = replace(graph, tasks=graph.tasks[:1], edges=graph.edges[:1])

    assert lower(emptied, 1).sharing is None


def test_transfers_and_kernels_of_other_ranks_are_apart() -> None:
    """A lane with members belongs to these alone."""
    network = Network(compute_share=0.5, members=((0, 1), (0, 2), (1, 0)))
    tasks = [transfer(0, 10), transfer(1, 10), *(kernel(lane, 10) for lane in (2, 3, 4))]
    found = sharing(network, tasks, ranks=[0, 0, 0, 1, 2])

    assert found is not None
    assert found.group.tolist() == [0, 1, 2, 3, 4]
    assert pairs(found) == [(0, 3), (0, 4), (1, 2), (2, 1), (3, 0), (4, 0)]


def test_kernels_beside_no_transfer_run_freely() -> None:
    """Rank 1 has none."""
    network = Network(compute_share=0.5, members=((0, 0),))
    found = sharing(network, [transfer(0, 10), kernel(1, 10), kernel(2, 10)], ranks=[0, 0, 1])

    assert found is not None
    assert found.group.tolist() == [0, 1, -1]


def test_another_network_is_laid_out_anew() -> None:
    """Times may change, what is shared may not, for a replay to reuse the layout of another."""
    routes = ((0, 0, 1.0), (1, 0, 1.0))
    before = replay(job(Network(ONE_LINK, routes), [transfer(0, 90), transfer(1, 90)], wrap=True))
    faster = replace(before.graph, tasks=before.graph.tasks.assign(work_ns=[90, 30]))
    again = replay(faster, like=before)
    apart = replay(faster.with_state(network=Network(ONE_LINK, routes[:1])), like=before)

    assert again.lowered.layout is before.lowered.layout
    assert again.step_ns == replay(faster).step_ns
    assert apart.lowered.layout is not before.lowered.layout
    assert apart.step_ns == 90.0
