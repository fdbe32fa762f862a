"""Shared links and contention on literal jobs: who runs how fast, and when it ends."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretrace.graph.shared_links import Network
from foretrace.replaying.engine.event_driven import run_events
from foretrace.replaying.engine.event_loop import PARTS
from foretrace.replaying.engine.fluid_rates import enter, settle
from foretrace.replaying.engine.loop_state import make_flows
from foretrace.replaying.engine.program import Sharing
from foretrace.replaying.engine.static import run_static
from foretrace.replaying.engine.topological import prepare, sort_moments
from foretrace.replaying.lower import lower
from tests.support.jobs.shared_links import (
    ONE_LINK,
    added,
    job,
    kernel,
    played,
    shared,
    times,
    transfer,
)

# --- shared links ------------------------------------------------------------------------------


def test_two_equal_transfers_take_twice_as_long() -> None:
    """Half the link each, from 0 to 200."""
    assert times(shared(100, 100)) == [(0, 200), (0, 200)]


def test_short_one_leaves_the_link_to_the_long_one() -> None:
    """Both at half until 200; then the long one does its other 200 alone."""
    assert times(shared(100, 300)) == [(0, 200), (0, 400)]


def test_three_transfers_over_two_links() -> None:
    """The first takes both links, each with one other: all at half."""
    routes = ((0, 0, 1.0), (0, 1, 1.0), (1, 0, 1.0), (2, 1, 1.0))
    graph = job(Network(("a", "b"), routes), [transfer(lane, 100) for lane in range(3)])

    assert times(graph) == [(0, 200)] * 3


def test_what_one_cannot_use_the_others_get() -> None:
    """Three on the first link, at a third: the one beside on the second link has two thirds."""
    routes = ((0, 0, 1.0), (0, 1, 1.0), (1, 0, 1.0), (2, 1, 1.0), (3, 0, 1.0))
    graph = job(Network(("a", "b"), routes), [transfer(lane, 120) for lane in range(4)])

    assert times(graph) == [(0, 360), (0, 360), (0, 180), (0, 360)]


def test_a_slow_transfer_is_not_held_back_by_a_fast_one() -> None:
    """One that takes 0.3 of the link keeps its pace; the other has the 0.7 that are left."""
    assert times(shared(70, 100, uses=[1.0, 0.3])) == [(0, 100), (0, 100)]


def test_transfers_that_hold_each_other_rise_alike() -> None:
    """Each takes one link whole and a fifth of the other's: 1 / 1.2 for both."""
    routes = ((0, 0, 1.0), (0, 1, 0.2), (1, 0, 0.2), (1, 1, 1.0))
    graph = job(Network(("a", "b"), routes), [transfer(0, 100), transfer(1, 100)])

    assert times(graph) == [(0, 120), (0, 120)]


def test_late_transfer_shares_from_its_start_on() -> None:
    """50 alone, then 50 at half until 150; the second has done 50 by then and goes on alone."""
    graph = job(
        Network(ONE_LINK, ((0, 0, 1.0), (1, 0, 1.0))),
        [transfer(0, 100), transfer(1, 100), ("wait", "host", 2, 50, None)],
        [(2, 1, "data")],
    )

    assert times(graph)[:2] == [(0, 150), (50, 200)]


def test_ends_are_whole_ns() -> None:
    """Three transfers of 100, 101 and 103: ends at 300, 302 and 304."""
    assert times(shared(100, 101, 103)) == [(0, 300), (0, 302), (0, 304)]


def test_transfers_of_one_lane_share_as_well() -> None:
    """A lane whose tasks no edge orders moves several things at once."""
    graph = shared(100, 100)
    graph = replace(graph, tasks=graph.tasks.assign(lane=np.zeros(2, np.int32)))

    assert times(graph) == [(0, 200), (0, 200)]


def test_empty_transfer_takes_no_time() -> None:
    """And none of the link."""
    assert times(shared(0, 100)) == [(0, 0), (0, 100)]


def test_an_end_may_have_to_wait_for_more() -> None:
    """The transfer is done at 200, and frees the link; its end waits for another task."""
    graph = job(
        Network(ONE_LINK, ((0, 0, 1.0), (1, 0, 1.0))),
        [transfer(0, 100), transfer(1, 300), ("sync", "host", 2, 900, None)],
        [(2, 0, "return")],
    )

    assert times(graph)[:2] == [(0, 900), (0, 400)]


def test_excess_is_told_apart_by_cause() -> None:
    """100 for the link; nothing for contention."""
    assert added(played(shared(100, 300))) == [(100, 0), (100, 0)]


# --- contention --------------------------------------------------------------------------------


def overlapping(compute_share: float, transfer_share: float) -> Network:
    """Return the network of a transfer on lane 0 that no link limits."""
    return Network(compute_share=compute_share, transfer_share=transfer_share, members=((0, 0),))


def test_kernel_is_slow_while_a_transfer_runs() -> None:
    """Half speed until 60; the other 70 at full speed."""
    graph = job(overlapping(0.5, 1.0), [transfer(0, 60), kernel(1, 100)])

    assert times(graph) == [(0, 60), (0, 130)]


def test_transfer_is_slow_while_a_kernel_runs() -> None:
    """Half speed until 100; the last 10 at full speed."""
    graph = job(overlapping(1.0, 0.5), [transfer(0, 60), kernel(1, 100)])

    assert times(graph) == [(0, 110), (0, 100)]


def test_both_slow_each_other() -> None:
    """The transfer takes 120, the kernel has done 60 by then."""
    graph = job(overlapping(0.5, 0.5), [transfer(0, 60), kernel(1, 100)])
    schedule = played(graph)

    assert schedule.end_ns.tolist() == [120, 160]
    assert added(schedule) == [(0, 60), (0, 60)]


def test_shares_apply_to_what_the_links_allow() -> None:
    """Two on one link beside a kernel: a quarter of full speed; 100 lost to the link."""
    graph = job(
        Network(ONE_LINK, ((0, 0, 1.0), (1, 0, 1.0)), transfer_share=0.5),
        [transfer(0, 100), transfer(1, 100), kernel(2, 1_000)],
    )
    schedule = played(graph)

    assert schedule.end_ns.tolist() == [400, 400, 1_000]
    assert added(schedule) == [(200, 100), (200, 100), (0, 0)]


def test_only_the_kinds_named_are_slowed() -> None:
    """A copy is none of them."""
    network = replace(overlapping(0.5, 1.0), slowed=("memcpy",))
    graph = job(network, [transfer(0, 60), kernel(1, 100), ("copy", "memcpy", 2, 100, None)])

    assert times(graph) == [(0, 60), (0, 100), (0, 130)]


def test_other_ranks_are_not_slowed() -> None:
    """Lane 0 is rank 0's; a kernel of rank 1 does not notice."""
    network = Network(("nic",), ((0, 0, 1.0),), compute_share=0.5)
    graph = job(network, [transfer(0, 60), kernel(1, 100), kernel(2, 100)], ranks=[0, 0, 1])

    assert times(graph) == [(0, 60), (0, 130), (0, 100)]


def test_transfer_slows_all_ranks_that_it_joins() -> None:
    """Ranks 0 and 2 are its members, whatever the rank of its lane."""
    network = Network(compute_share=0.5, members=((0, 0), (0, 2)))
    graph = job(
        network,
        [transfer(0, 60), kernel(1, 100), kernel(2, 100), kernel(3, 100)],
        ranks=[1, 0, 1, 2],
    )

    assert times(graph) == [(0, 60), (0, 130), (0, 100), (0, 130)]


def test_other_devices_of_a_rank_are_not_slowed() -> None:
    """A stream's transfer meets the kernels of its device."""
    network = Network(("nic",), ((0, 0, 1.0),), compute_share=0.5)
    graph = job(network, [transfer(0, 60), kernel(1, 100), kernel(2, 100)])
    lanes = graph.lanes.assign(device=[0, 0, 1]).astype({"device": "int16"})

    assert times(replace(graph, lanes=lanes)) == [(0, 60), (0, 130), (0, 100)]


@pytest.mark.parametrize(("work", "end"), [(20, 120), (50, 150)])
def test_what_should_have_started_in_the_past_has_run_since(work: int, end: int) -> None:
    """The second kernel may start 30 before the first ends at 130, and has done 30 by then."""
    graph = job(
        overlapping(0.5, 1.0),
        [transfer(0, 60), kernel(1, 100), ("sync", "sync", 2, 0, None), kernel(3, work)],
        [(1, 2, "return", -30), (2, 3, "data")],
    )

    assert times(graph) == [(0, 60), (0, 130), (0, 100), (100, end)]


def test_a_slowed_kernel_may_queue_for_the_device() -> None:
    """Two kernels that fill it: the second starts when the first ends, and is slowed until 200."""
    graph = job(
        overlapping(0.5, 1.0),
        [transfer(0, 200), kernel(1, 50), kernel(2, 70)],
        columns={"fill": [np.nan, 2.0, 2.0]},
    )
    schedule = played(graph)

    assert schedule.start_ns.tolist() == [0, 0, 100]
    assert schedule.end_ns.tolist() == [200, 100, 220]
    assert schedule.holder.tolist() == [-1, -1, 1]


# --- many --------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=8))
def test_a_link_is_never_idle_while_it_is_wanted(works: list[int]) -> None:
    """Bytes over time is the capacity: together they take as long as one after another."""
    last = max(end for _, end in times(shared(*works)))

    assert abs(last - sum(works)) <= len(works)


@settings(deadline=None)
@given(st.data())
def test_links_are_shared_without_waste(data: st.DataObject) -> None:
    """No link carries more than it can, and every transfer is at full speed or on a full link."""
    links = data.draw(st.integers(1, 4))
    some_links = st.lists(st.integers(0, links - 1), min_size=1, max_size=links, unique=True)
    routes = data.draw(st.lists(some_links, min_size=1, max_size=6))
    uses = [[data.draw(st.integers(1, 10)) / 10 for _ in route] for route in routes]
    rates = filled(links, routes, uses)
    load = np.zeros(links)
    for rate, route, use in zip(rates, routes, uses, strict=True):
        load[route] += rate * np.array(use)

    assert (load <= 1 + 1e-6).all()
    assert all(
        rate == 1 or (load[route] > 1 - 1e-6).any()
        for rate, route in zip(rates, routes, strict=True)
    )


def filled(links: int, routes: list[list[int]], uses: list[list[float]]) -> list[float]:
    """Return the rates of one running transfer per route."""
    groups = len(routes)
    link, group = np.concatenate(routes), np.repeat(np.arange(groups), [len(r) for r in routes])
    by_link = np.argsort(link, kind="stable")
    sharing = Sharing(
        group=np.arange(groups, dtype=np.int32),
        share=np.ones(groups),
        first_neighbour=np.zeros(groups + 1, np.int32),
        neighbour=np.empty(0, np.int32),
        first_route=np.searchsorted(group, np.arange(groups + 1)).astype(np.int32),
        link=link.astype(np.int32),
        use=np.concatenate(uses),
        first_user=np.searchsorted(link[by_link], np.arange(links + 1)).astype(np.int32),
        user=group[by_link].astype(np.int32),
    )
    flows, behind = make_flows(sharing, groups), np.full(groups, -1, np.int32)
    tally = flows.tally[0]
    for at in range(groups):
        enter(flows.groups, flows.neighbours, tally, flows.goal, flows.lost, behind, at, at, 0, 100)
    settle(
        flows.groups,
        flows.links,
        flows.routes,
        flows.users,
        tally,
        flows.goal,
        behind,
        flows.earliest,
    )
    rates: list[float] = flows.groups.rate[:groups].tolist()
    return rates


def test_links_that_are_never_short_change_nothing() -> None:
    """Where there is room for all, the event-driven engine agrees with the static one."""
    graph = shared(100, 300, 50, uses=[0.4, 0.3, 0.3])
    program = lower(graph, 1)
    assert program.sharing is not None  # its lanes are not chained: windows might overlap
    prepared = prepare(program)

    static = run_static(prepared, sort_moments(prepared))
    assert run_events(prepared).moments.tolist() == static.moments.tolist()


def test_neutral_network_is_no_network() -> None:
    """Full speed for all: the same times as without."""
    graph = job(overlapping(1.0, 1.0), [transfer(0, 60), kernel(1, 100)])

    assert lower(graph, 1).sharing is None
    assert times(graph) == times(graph.with_state(network=Network()))


def test_compiled_loop_is_renewed_with_its_parts() -> None:
    """The digest in event_loop.py must follow them, or numba's cache would keep what they were."""
    folder = Path(settle.py_func.__code__.co_filename).parent
    digest = sha256()
    for name in ("fluid_rates.py", "max_min_fair.py"):
        digest.update((folder / name).read_bytes())

    assert digest.hexdigest().startswith(PARTS)
    assert len(PARTS) == 16
