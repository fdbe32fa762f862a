"""The two engines on literal programs, with and without resources, and on bad ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from foretrace.replaying.critical_path import REASONS
from foretrace.replaying.engine.program import END_END, START_END, START_START, Program, ReplayError
from foretrace.replaying.engine.static import run
from tests.support.programs import Link, by_hand, cause_of


def times(program: Program) -> list[tuple[int, int]]:
    """Run *program* and return (start, end) of its tasks."""
    schedule = run(program)
    return list(zip(schedule.start_ns.tolist(), schedule.end_ns.tolist(), strict=True))


# --- literal programs --------------------------------------------------------------------------


def test_chain_adds_work_and_lags() -> None:
    """A task follows the end of the one before it, after the lag."""
    program = by_hand([10, 20, 30], [Link(0, 1, 1), Link(1, 2, 2)])

    assert times(program) == [(0, 10), (11, 31), (33, 63)]


def test_launch_counts_from_the_start_of_its_call() -> None:
    """A kernel may start before its call has returned."""
    program = by_hand([10, 5], [Link(0, 1, 6, START_START)])

    assert times(program) == [(0, 10), (6, 11)]


def test_blocking_call_ends_with_its_copy() -> None:
    """Call starts copy, copy ends call: a cycle among tasks, none among moments."""
    program = by_hand([5, 100], [Link(0, 1, 6, START_START), Link(1, 0, 8, END_END)])

    assert times(program) == [(0, 114), (6, 106)]


def test_call_may_return_before_its_copy_ends() -> None:
    """A negative return lag lets the thread go on while the copy still runs."""
    links = [Link(0, 1, 6, START_START), Link(1, 0, -30, END_END), Link(0, 2)]
    program = by_hand([5, 100, 7], links)

    assert times(program) == [(0, 76), (6, 106), (76, 83)]


def test_own_work_is_never_cut_short() -> None:
    """A return that comes earlier than the call's own work does not end it."""
    program = by_hand([50, 10], [Link(0, 1, 6, START_START), Link(1, 0, -30, END_END)])

    assert times(program) == [(0, 50), (6, 16)]


def test_full_queue_ends_a_launch_with_the_start_of_an_older_kernel() -> None:
    """START_END holds the launch until the older kernel leaves the queue."""
    program = by_hand([40, 5, 3], [Link(0, 1), Link(1, 2, 0, START_END)], lane=[0, 0, 1])

    assert times(program) == [(0, 40), (40, 45), (0, 40)]


def test_release_delays_a_start() -> None:
    """Nothing starts before its release."""
    assert times(by_hand([10, 5], release_ns=[0, 12])) == [(0, 10), (12, 17)]


def test_no_tasks_is_a_program_too() -> None:
    """An empty program has an empty schedule."""
    assert times(by_hand([])) == []


def test_repetitions_are_joined_by_shifted_edges() -> None:
    """An edge leads its shift further, none beyond the last; a release bounds the first only."""
    links = [Link(1, 0, 3, shift=2), Link(1, 0, 2, shift=1), Link(0, 1, 1)]
    program = by_hand([4, 5], links, repetitions=3, release_ns=[6, 0])

    assert times(program) == [(6, 10), (11, 16), (18, 22), (23, 28), (30, 34), (35, 40)]


def test_an_edge_may_reach_over_a_repetition() -> None:
    """The first two repetitions run at once, the third waits for the first."""
    program = by_hand([4], [Link(0, 0, 3, shift=2)], repetitions=3)

    assert times(program) == [(0, 4), (0, 4), (7, 11)]


def test_resources_are_shared_by_all_repetitions() -> None:
    """One copy engine serves the first repetition's copies, then the second's."""
    program = by_hand([4, 5], repetitions=2, resource=[0, 0], holds=[True, True], lane=[0, 1])

    assert times(program) == [(0, 4), (4, 9), (9, 13), (13, 18)]


# --- resources ---------------------------------------------------------------------------------


def test_holders_take_turns_in_order_of_ready_time() -> None:
    """First come, first served, whatever the index."""
    program = by_hand(
        [10, 10, 10], resource=[0, 0, 0], holds=[True] * 3, release_ns=[2, 1, 0], lane=[0, 1, 2]
    )

    assert times(program) == [(20, 30), (10, 20), (0, 10)]


def test_ties_go_to_the_lower_index() -> None:
    """Two tasks that are ready at once are served by index."""
    program = by_hand([10, 10], resource=[0, 0], holds=[True, True])

    assert times(program) == [(0, 10), (10, 20)]


def test_those_that_do_not_hold_run_side_by_side() -> None:
    """Without a holder nobody waits; a holder does not wait for them either."""
    program = by_hand([30, 30, 10], resource=[0, 0, 0], holds=[False, False, True])

    assert times(program) == [(0, 30), (0, 30), (0, 10)]


def test_those_that_do_not_hold_wait_for_the_holder() -> None:
    """A saturating kernel lets nobody start until it ends."""
    program = by_hand(
        [30, 10, 10], resource=[0, 0, 0], holds=[True, False, False], release_ns=[0, 5, 7]
    )

    assert times(program) == [(0, 30), (30, 40), (30, 40)]


def test_queue_is_served_in_order_even_past_a_holder() -> None:
    """Who queues behind a holder waits for it, though another could have slipped in."""
    program = by_hand(
        [30, 10, 5], resource=[0, 0, 0], holds=[True, True, False], release_ns=[0, 1, 2]
    )

    assert times(program) == [(0, 30), (30, 40), (40, 45)]


def test_blocking_copy_holds_the_lock_while_it_waits() -> None:
    """The lock is occupied until the call returns, not only for its own work."""
    program = by_hand(
        [5, 100, 4],
        [Link(0, 1, 6, START_START), Link(1, 0, 8, END_END)],
        resource=[0, -1, 0],
        holds=[True, False, False],
        release_ns=[0, 0, 3],
    )

    assert times(program) == [(0, 114), (6, 106), (114, 118)]


def test_resources_are_independent() -> None:
    """A holder of one resource does not stop the users of another."""
    program = by_hand([10, 10], resource=[0, 1], holds=[True, True])

    assert times(program) == [(0, 10), (0, 10)]


def test_release_comes_before_a_request_of_the_same_moment() -> None:
    """Who becomes ready when the holder ends does not wait."""
    program = by_hand([10, 4], resource=[0, 0], holds=[True, True], release_ns=[0, 10])
    schedule = run(program)

    assert schedule.start_ns.tolist() == [0, 10]
    assert schedule.holder.tolist() == [-1, -1]


# --- causes ------------------------------------------------------------------------------------


def bound(program: Program) -> list[tuple[int, str]]:
    """Return what determined each start, then each end: a moment, and why."""
    schedule = run(program)
    found = [cause_of(schedule, moment) for moment in range(2 * len(program.work_ns))]
    return [(before, REASONS[why]) for before, why in found]


def test_causes_are_edge_holder_release_and_own_work() -> None:
    """Each start and end says what bound it."""
    program = by_hand(
        [10, 20, 5, 1],
        [Link(0, 1, 3, kind="thread"), Link(1, 2, 0, END_END, kind="return")],
        resource=[0, -1, -1, 0],
        holds=[True, False, False, False],
    )

    starts = [(0, "release"), (4, "thread"), (2, "release"), (4, "resource")]
    ends = [(0, "work"), (1, "work"), (5, "return"), (3, "work")]
    assert bound(program) == starts + ends


def test_first_of_several_binding_edges_is_named() -> None:
    """Ties between edges are decided by their order."""
    program = by_hand([10, 10, 1], [Link(1, 2), Link(0, 2)])

    assert bound(program)[2] == (4, "data")


# --- bad programs ------------------------------------------------------------------------------


def test_cycle_is_an_error_that_names_its_tasks() -> None:
    """Only the tasks on the cycle are named."""
    program = by_hand([1, 1, 1, 1], [Link(0, 1), Link(1, 2), Link(2, 1), Link(2, 3)])

    with pytest.raises(ReplayError, match=r"edges form a cycle through tasks 1, 2$") as caught:
        run(program)
    assert caught.value.tasks == (1, 2)


def test_long_cycles_are_named_in_part() -> None:
    """Eight tasks are enough to find it."""
    program = by_hand([1] * 20, [Link(i, (i + 1) % 20) for i in range(20)])

    with pytest.raises(ReplayError, match=r"and 12 more$"):
        run(program)


def test_deadlock_is_an_error_and_not_a_hang() -> None:
    """A lock held until a task ends that needs the lock is never given free."""
    program = by_hand(
        [5, 5],
        [Link(0, 1, 1, START_START), Link(1, 0, 0, END_END)],
        resource=[0, 0],
        holds=[True, False],
    )

    with pytest.raises(
        ReplayError, match="deadlock: tasks 0 hold a resource that tasks 1 queue for"
    ) as caught:
        run(program)
    assert caught.value.tasks == (0, 1)


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("work_ns", [3, -1], "work_ns of task 1 is negative"),
        ("release_ns", [-2, 0], "release_ns of task 0 is negative"),
        ("lane", [0], "lane has 1 entries for 2 tasks"),
        ("lag_ns", [], "lag_ns has 0 entries for 1 edges"),
        ("dst", [2], "dst of edge 0 is 2, expected 0 to 1"),
        ("src", [-1], "src of edge 0 is -1, expected 0 to 1"),
        ("anchor", [4], "anchor of edge 0 is 4, expected 0 to 3"),
        ("shift", [-1], "shift of edge 0 is -1, expected 0 to"),
    ],
)
def test_columns_out_of_range_are_refused(column: str, values: list[int], message: str) -> None:
    """Compiled code never reads outside its arrays."""
    program = by_hand([3, 4], [Link(0, 1)])
    dtype = getattr(program, column).dtype

    with pytest.raises(ReplayError, match=message):
        run(replace(program, **{column: np.array(values, dtype)}))  # type: ignore[arg-type]
