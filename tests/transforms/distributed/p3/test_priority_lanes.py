"""Lanes that serve the most urgent first: against a slower, plainer account of the same rule."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from foretrace.transforms.distributed.p3.priority_lanes import PULL, PUSH, SliceExchange, serve

TIMES = st.integers(0, 20).map(float)
EXCHANGES = st.lists(
    st.builds(SliceExchange, TIMES, st.integers(0, 3), TIMES, TIMES, TIMES), min_size=1, max_size=8
)


def test_what_has_begun_is_finished() -> None:
    """The urgent one is ready while the lane is busy: it comes next, before what came earlier."""
    first, second, urgent = (
        SliceExchange(0, 1, 10, 1),
        SliceExchange(1, 1, 10, 1),
        SliceExchange(5, 0, 10, 1),
    )

    assert [at for at, leg in serve([first, second, urgent], apart=True) if leg == PUSH] == [
        0,
        2,
        1,
    ]


def test_pull_waits_for_the_server() -> None:
    """An update of 100 between push and pull: the next push runs meanwhile, on the same lane."""
    slow, quick = SliceExchange(0, 0, 10, 10, 100), SliceExchange(0, 1, 10, 10)

    assert serve([slow, quick], apart=False) == [(0, 0), (1, 0), (1, 1), (0, 1)]


def test_lanes_idle_until_something_is_ready() -> None:
    """Nothing is ready before 50."""
    assert serve([SliceExchange(50, 0, 1, 1), SliceExchange(60, 0, 1, 1)], apart=True) == [
        (0, PUSH),
        (0, PULL),
        (1, PUSH),
        (1, PULL),
    ]


@given(exchanges=EXCHANGES)
def test_every_leg_runs_once_and_a_pull_after_its_push(exchanges: list[SliceExchange]) -> None:
    """Whatever the times, on one lane and on two."""
    for apart in (False, True):
        order = serve(exchanges, apart=apart)

        assert sorted(order) == [(at, leg) for at in range(len(exchanges)) for leg in (PUSH, PULL)]
        assert all(order.index((at, PUSH)) < order.index((at, PULL)) for at, _ in order)


@given(exchanges=EXCHANGES)
def test_one_lane_is_never_idle_while_something_is_ready(exchanges: list[SliceExchange]) -> None:
    """Each begins at once where it is ready, and nothing more urgent was."""
    order = serve(exchanges, apart=False)
    ready = {(at, PUSH): each.ready_ns for at, each in enumerate(exchanges)}
    now = 0.0
    for at, leg in order:
        each = exchanges[at]
        now = max(now, min(ready.values()))
        assert ready[at, leg] <= now
        waiting = [exchanges[other].urgency for (other, _), time in ready.items() if time <= now]
        assert each.urgency == min(waiting)
        del ready[at, leg]
        now += each.push_ns if leg == PUSH else each.pull_ns
        if leg == PUSH:
            ready[at, PULL] = now + each.between_ns
