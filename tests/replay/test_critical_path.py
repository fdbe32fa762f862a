"""Critical path, limiting cycle and slack of small steady programs; the timeline on top."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from foretrace.graph.shared_links import Network
from foretrace.replaying import critical_path as critical
from foretrace.replaying.critical_path import (
    REASONS,
    CausalChain,
    sum_time_by,
    trace_critical_path,
    trace_limiting_cycle,
)
from foretrace.replaying.engine.program import END_END, START_START, Program
from foretrace.replaying.engine.schedule import Schedule
from foretrace.replaying.engine.topological import prepare
from foretrace.replaying.replay import replay
from foretrace.replaying.slack import compute_slack
from foretrace.replaying.steady_state import Steady, find_steady_state
from tests.support.jobs.shared_links import ONE_LINK, kernel, transfer
from tests.support.jobs.shared_links import job as networks_job
from tests.support.programs import Link, by_hand

if TYPE_CHECKING:
    import pytest

    from foretrace.graph.model import Graph

HOST_AND_DEVICE = np.array([False, True])


def job(
    repetitions: int, *, host_ns: int = 5, device_ns: int = 7, return_ns: int | None = None
) -> Program:
    """One launch and one kernel per repetition; gaps 1, latency 6."""
    links = [
        Link(0, 0, 1, shift=1, kind="thread"),
        Link(1, 1, 1, shift=1, kind="stream"),
        Link(0, 1, 6, START_START, kind="launch"),
    ]
    if return_ns is not None:
        links.append(Link(1, 0, return_ns, END_END, kind="return"))
    return by_hand([host_ns, device_ns], links, repetitions=repetitions, lane=[0, 1])


def settled(**options: Any) -> Steady:
    """Return the steady state of `job`."""
    return find_steady_state(partial(job, **options), HOST_AND_DEVICE)


def parts(chain: CausalChain, tasks: int = 2) -> list[tuple[int, str, int]]:
    """Return (row, reason, length) of the segments, in order of time."""
    columns = (chain.task % tasks, chain.why, chain.to_ns - chain.from_ns)
    return [
        (row, REASONS[why], length)
        for row, why, length in zip(*(column.tolist() for column in columns), strict=True)
    ][::-1]


def test_device_bound_path_stays_on_the_device() -> None:
    """Kernel after kernel, with the gap between them."""
    assert parts(trace_critical_path(settled())) == [(1, "work", 7), (1, "stream", 1)]


def test_host_bound_path_stays_on_the_host() -> None:
    """The kernel hides behind the next launch."""
    assert parts(trace_critical_path(settled(host_ns=9))) == [(0, "work", 9), (0, "thread", 1)]


def test_synchronous_path_goes_round() -> None:
    """Launch, kernel, return, and the host's gap: the whole of the step."""
    found = settled(return_ns=8)

    expected = [(1, "launch", 6), (1, "work", 7), (0, "return", 8), (0, "thread", 1)]
    assert parts(trace_critical_path(found)) == expected
    assert parts(trace_limiting_cycle(found)) == expected


def test_negative_return_lag_is_no_negative_part() -> None:
    """The part of the copy after the call returned is not on the path."""
    found = settled(device_ns=50, return_ns=-30, host_ns=5)

    assert found.period_ns == 51.0  # the device's own 50 + 1 still binds
    expected = [(1, "work", 29), (1, "stream", 1), (1, "work", 20), (0, "thread", 1)]
    assert parts(trace_critical_path(found)) == expected
    assert parts(trace_limiting_cycle(found)) == [(1, "stream", 1), (1, "work", 50)]

    slow_host = find_steady_state(
        lambda k: by_hand(
            [5, 50, 40],
            [
                Link(0, 1, 6, START_START, kind="launch"),
                Link(1, 0, -30, END_END, kind="return"),
                Link(0, 2, kind="thread"),
                Link(2, 0, 2, shift=1, kind="thread"),
            ],
            repetitions=k,
            lane=[0, 1, 0],
        ),
        HOST_AND_DEVICE,
    )
    expected = [(1, "launch", 6), (1, "work", 20), (2, "work", 40), (0, "thread", 2)]
    assert parts(trace_critical_path(slow_host), 3) == expected


def two_streams_of_one_device() -> Steady:
    """Return 6 ns of one stream and 9 ns of another, of which one may run at a time."""
    return find_steady_state(
        lambda k: by_hand(
            [6, 9],
            [Link(0, 0, shift=1), Link(1, 1, shift=1)],
            repetitions=k,
            lane=[0, 1],
            resource=[0, 0],
            holds=[True, True],
        ),
        np.array([True, True]),
    )


def test_path_through_a_held_resource_shows_the_holder() -> None:
    """Two streams share the device: the step is the sum, with the hand-over marked."""
    found = two_streams_of_one_device()

    assert found.period_ns == 15.0
    path = parts(trace_critical_path(found))
    assert Counter(path) == Counter(
        [(0, "work", 6), (1, "work", 9), (0, "resource", 0), (1, "resource", 0)]
    )


def test_unbound_start_ends_the_walk() -> None:
    """What nothing explains is a release, so that the parts still add up."""

    def at_tens(program: Program) -> Schedule:
        moments = np.repeat(10 * np.arange(program.repetitions), 2)
        moments[1::2] += 3
        nobody = np.full(program.repetitions, -1, np.int32)
        return Schedule(moments, nobody, np.arange(2, dtype=np.int32), prepare(program))

    found = find_steady_state(lambda k: by_hand([3], repetitions=k), np.array([False]), at_tens)

    assert parts(trace_critical_path(found), 1) == [(0, "release", 10)]
    assert parts(trace_limiting_cycle(found), 1) == []


def test_cycle_of_two_repetitions_is_found() -> None:
    """The limiting chain may close on itself two repetitions earlier."""
    links = [Link(0, 0, 0, shift=1, kind="thread"), Link(0, 1), Link(1, 0, 0, shift=2)]
    alternating = partial(by_hand, [3, 8], links, lane=[0, 1])
    found = find_steady_state(lambda k: alternating(repetitions=k), HOST_AND_DEVICE)

    assert found.period_ns == 5.5
    assert parts(trace_limiting_cycle(found)) == [(0, "work", 3), (1, "work", 8)]


def test_slack_of_a_hidden_kernel() -> None:
    """Before the host's last launch ends at 49, each kernel could start two steps later or so."""
    found = settled(host_ns=9)

    host, device = compute_slack(found)
    assert host == 0
    # window 1 of 4: starts at 16, the kernels after it need 8, 8 and 7, the last end is 46 + 0
    last_end = int(found.schedule.end_ns.max())
    start = int(found.schedule.start_ns[found.window * 2 + 1])
    assert device == last_end - 8 - 8 - 7 - start


def test_binding_holders_have_no_slack() -> None:
    """A task behind a held resource makes its holder critical."""
    found = two_streams_of_one_device()

    assert compute_slack(found).tolist() == [0, 0]


@settings(deadline=None)
@given(st.integers(1, 50), st.integers(1, 50), st.one_of(st.none(), st.integers(-20, 20)))
def test_parts_add_up_to_the_pattern(host_ns: int, device_ns: int, return_ns: int | None) -> None:
    """No time is unexplained, and none counted twice."""
    found = settled(host_ns=host_ns, device_ns=device_ns, return_ns=return_ns)
    path = trace_critical_path(found)

    assert int((path.to_ns - path.from_ns).sum()) == found.period_ns * found.cycle
    assert (path.from_ns[:-1] == path.to_ns[1:]).all()
    cycle = trace_limiting_cycle(found)
    assert int((cycle.to_ns - cycle.from_ns).sum()) % found.period_ns == 0
    assert (compute_slack(found) >= 0).all()


def test_long_chains_are_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain longer than the usual room is walked again with enough of it."""
    monkeypatch.setattr(critical, "_USUAL", 1)

    assert parts(trace_critical_path(settled(host_ns=9))) == [(0, "work", 9), (0, "thread", 1)]


def test_reasons_are_edge_kinds_and_five_more() -> None:
    """Reports use these words."""
    assert REASONS[-5:] == ("work", "resource", "release", "shared link", "contention")


def sharing_job(*edges: tuple[int, int, str, int, int], share: float = 1.0) -> Graph:
    """Return transfers of 100 and 60 that share a link after 10 on the host, step after step."""
    network = Network(ONE_LINK, ((0, 0, 1.0), (1, 0, 1.0)), share, share)
    tasks = [transfer(0, 100), transfer(1, 60), ("step", "host", 2, 10, None)]
    edges = edges or ((0, 2, "join", 0, 1),)
    return networks_job(
        network, tasks, [(2, 0, "data"), (2, 1, "data"), (1, 2, "join", 0, 1), *edges]
    )


def test_what_sharing_adds_is_a_part_of_its_own() -> None:
    """The step of 170: 10 on the host, a transfer of 100, and 60 because of the other."""
    timeline = replay(sharing_job())

    expected = [(0, "work", 100), (0, "shared link", 60), (2, "work", 10)]
    assert parts(timeline.path, 3) == expected
    assert timeline.breakdown() == {"collective": 100.0, "shared link gap": 60.0, "host": 10.0}
    assert timeline.slack_ns.tolist() == [0, 40, 0]
    assert timeline.lanes["waiting_ns"].tolist() == [60.0, 60.0, 0.0]


def test_contention_is_a_part_of_its_own() -> None:
    """A kernel of 100 beside a transfer of 60, both at half speed: 160 in all."""
    network = Network(compute_share=0.5, transfer_share=0.5, members=((0, 0),))
    graph = networks_job(
        network,
        [transfer(0, 60), kernel(1, 100), ("step", "host", 2, 10, None)],
        [(2, 0, "data"), (2, 1, "data"), (0, 2, "join", 0, 1), (1, 2, "join", 0, 1)],
    )

    expected = [(1, "work", 100), (1, "contention", 60), (2, "work", 10)]
    assert parts(replay(graph).path, 3) == expected


def test_a_cause_may_lie_within_what_sharing_added() -> None:
    """The step returns 20 before the transfer ends: 40 of the 60 are left on the path."""
    timeline = replay(sharing_job((0, 2, "return", -20, 1)))
    path = timeline.path

    assert (path.from_ns[:-1] == path.to_ns[1:]).all()
    assert int((path.to_ns - path.from_ns).sum()) == timeline.period_ns * timeline.steady.cycle
    assert "shared link" in {why for _, why, _ in parts(path, 3)}


@settings(deadline=None)
@given(st.lists(st.integers(1, 500), min_size=4, max_size=4), st.sampled_from([1.0, 0.5, 0.9]))
def test_parts_add_up_while_tasks_share(works: list[int], share: float) -> None:
    """Two transfers over one link beside a kernel, then the host: no time is unexplained."""
    network = Network(ONE_LINK, ((0, 0, 1.0), (1, 0, 0.7)), share, share)
    tasks = [transfer(0, works[0]), transfer(1, works[1]), kernel(2, works[2])]
    edges = [edge for row in range(3) for edge in ((3, row, "data"), (row, 3, "join", 0, 1))]
    timeline = replay(networks_job(network, [*tasks, ("step", "host", 3, works[3], None)], edges))
    path = timeline.path

    assert int((path.to_ns - path.from_ns).sum()) == timeline.period_ns * timeline.steady.cycle
    assert (path.from_ns[:-1] == path.to_ns[1:]).all()
    assert "release" not in {why for _, why, _ in parts(path, 4)}
    assert (timeline.slack_ns >= 0).all()


def test_time_is_summed_for_many_groups() -> None:
    """Also where the groups are numbered in eight bits, as the codes of a small category are."""
    works = np.full(2, REASONS.index("work"))
    chain = CausalChain(
        task=np.array([0, 3]), from_ns=np.array([4, 0]), to_ns=np.array([9, 4]), why=works
    )
    found = sum_time_by(chain, np.array([99, 0], np.int8), 100)

    assert found[99].tolist() == [5 if reason == "work" else 0 for reason in REASONS]
    assert found[0].tolist() == [4 if reason == "work" else 0 for reason in REASONS]
