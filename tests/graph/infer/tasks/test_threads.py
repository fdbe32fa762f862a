"""Threads take turns with the main one, are woken by it, load for it, or have no say."""

from __future__ import annotations

import numpy as np

from foretrace.graph.infer.tasks.threads import Threads, infer_thread_roles
from tests.support.recordings.events import Row, call, kernel, microseconds, op, parsed


def roles(rows: list[Row], loaders: tuple[int, ...] = (), *, fork_join: bool = True) -> Threads:
    """Return the roles of the threads of a recording whose main thread is 1."""
    _, host, devices = parsed(rows)
    launches = np.zeros(len(host), bool)
    launches[devices.launching] = True
    return infer_thread_roles(host, 1, loaders, launches, fork_join=fork_join)


BACKWARD = [
    op("aten::conv2d", 0, 100),
    op("ConvBackward", 110, 400, thread=2),
    call(510, 10, 1, thread=2),
    kernel(530, 5, 1),
    op("aten::add_", 540, 60),
]


def test_thread_that_works_while_the_main_one_pauses() -> None:
    """One fork and one join; neither pause is either thread's own time."""
    threads = roles(BACKWARD)
    (edges,) = threads.edges

    assert (threads.subordinates, threads.others) == ((2,), ())
    assert edges.kind.tolist() == ["fork", "join"]
    assert (edges.src.tolist(), edges.dst.tolist()) == ([0, 3], [2, 1])
    assert microseconds(edges.lag_ns) == [10, 20]
    assert threads.waited.tolist() == [False, True, True, False]
    assert threads.group.tolist() == [0, 0, 0, 0]


def test_rule_off_keeps_the_roles_only() -> None:
    """The thread is still autograd's, but the pauses stay as they were."""
    threads = roles(BACKWARD, fork_join=False)

    assert (threads.subordinates, threads.edges) == ((2,), ())
    assert not threads.waited.any()


def test_short_pause_is_no_handing_over() -> None:
    """Below 100 µs the main thread hardly waited."""
    rows = [op("a", 0, 10), call(20, 10, 1, thread=2), kernel(40, 5, 1), op("b", 50, 10)]
    threads = roles(rows)
    (edges,) = threads.edges

    assert (threads.subordinates, len(edges.src)) == ((2,), 0)


def test_short_pause_full_of_work_is_a_handing_over() -> None:
    """60 of 70 µs: a small job's backward pass."""
    rows = [op("a", 0, 10), call(15, 60, 1, thread=2), kernel(40, 5, 1), op("b", 80, 10)]
    (edges,) = roles(rows).edges

    assert edges.kind.tolist() == ["fork", "join"]
    assert microseconds(edges.lag_ns) == [5, 5]


def test_work_after_the_main_thread_is_in_no_pause_of_it() -> None:
    """The other thread waits for the device when the main one is done."""
    rows = [op("a", 0, 10), call(12, 5, 1, thread=2), op("b", 20, 10), kernel(40, 5, 1)]
    (edges,) = roles([*rows, call(200, 900, 2, thread=2, name="cudaDeviceSynchronize")]).edges

    assert (edges.src.tolist(), edges.dst.tolist()) == ([0, 2], [2, 1])


def test_watchdog_is_no_subordinate() -> None:
    """It looks in for 10 µs of a pause of 400 µs, and launches nothing."""
    threads = roles([op("a", 0, 100), op("look", 300, 10, thread=2), op("b", 500, 10)])

    assert (threads.subordinates, threads.others) == ((), (2,))


def test_thread_beside_the_main_one_is_woken_by_it() -> None:
    """It launches while the main thread works: after each pause what ended before woke it."""
    rows = [op("a", 0, 100), op("b", 100, 500), op("c", 601, 9)]
    rows += [call(150, 5, 1, thread=2), call(160, 5, 2, thread=2), call(400, 5, 3, thread=2)]
    rows += [kernel(200, 5, 1), kernel(205, 5, 2), kernel(410, 5, 3)]
    threads = roles(rows)
    (edges,) = threads.edges

    assert (edges.rule, edges.kind.tolist()) == ("wake-up", ["fork", "fork"])
    assert (edges.src.tolist(), edges.dst.tolist()) == ([0, 0], [3, 5])
    assert microseconds(edges.lag_ns) == [50, 300]
    assert threads.group.tolist() == [0, 0, 0, 1, 1, 1]


def test_nothing_wakes_a_thread_before_the_main_one_began() -> None:
    """Its first launch was at 5 µs; the main thread's first task ended at 100."""
    rows = [op("a", 0, 100), call(5, 5, 1, thread=2), kernel(20, 5, 1), op("b", 101, 5)]
    (edges,) = roles(rows).edges

    assert edges.src.tolist() == []


def test_loaders_are_coupled_elsewhere() -> None:
    """A thread with loader ranges gets a group of its own."""
    rows = [
        op("a", 0, 100),
        op("load", 0, 300, thread=3),
        op("x", 20, 5, thread=2),
        op("b", 200, 9),
    ]
    threads = roles(rows, loaders=(3,))

    assert (threads.loaders, threads.others, threads.edges) == ((3,), (2,), ())
    assert threads.group.tolist() == [0, 0, 2, 1]


def test_main_thread_of_one_task_has_no_pauses() -> None:
    """Nobody can take turns with it."""
    assert roles([op("a", 0, 100), op("x", 120, 50, thread=2)]).others == (2,)
