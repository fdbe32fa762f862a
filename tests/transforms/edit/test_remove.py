"""Removing tasks: lanes close, calls go with their kernels, dependencies move to neighbours."""

from __future__ import annotations

import numpy as np
import pytest

from foretrace.graph.check import check
from foretrace.graph.literal import literal
from foretrace.transforms.edit.remove import remove
from tests.support.edges import links
from tests.support.jobs.kernels import two_kernels


def test_a_kernel_goes_with_its_launch() -> None:
    """The call launched nothing else, so it goes too."""
    graph = check(remove(two_kernels(), np.array([False, False, True, False])))

    assert graph.tasks["name"].tolist() == ["cudaLaunchKernel", "relu"]
    assert links(graph, "launch") == [(0, 1, 6, 0)]


def test_a_call_that_launched_more_stays() -> None:
    """One kernel of a graph launch goes, the call stays for the other."""
    graph = literal(
        [("cudaGraphLaunch", "launch", 0, 5, None)] + [("k", "kernel", 1, 5, None)] * 2,
        [(0, 1, "launch", 6), (0, 2, "launch", 6)],
    )

    assert len(check(remove(graph, np.array([False, True, False]))).tasks) == 2


@pytest.mark.parametrize(("gaps", "lag"), [("keep", 9), ("drop", 6)])
def test_host_gaps_stay_or_go_with_a_loop(gaps: str, lag: int) -> None:
    """A(3)X(3)Y(3)B: the time inside the removed loop stays on the host, or goes with it."""
    graph = literal([(name, "host", 0, 5, None) for name in "axyb"], lag_ns=3)
    graph = check(remove(graph, np.array([False, True, True, False]), gaps=gaps))

    assert links(graph, "thread") == [(0, 1, lag, 0)]


def test_a_stream_keeps_one_gap() -> None:
    """Between two kernels lies one gap, however many were between them."""
    graph = literal([(name, "kernel", 0, 5, None) for name in "axyb"], lag_ns=3)
    graph = check(remove(graph, np.array([False, True, True, False])))

    assert links(graph, "stream") == [(0, 1, 3, 0)]


def test_the_window_still_closes() -> None:
    """Removing the last task moves the edge into the next repetition to the one before."""
    graph = literal([(name, "host", 0, 5, None) for name in "abx"], lag_ns=3, wrap=True)
    graph = check(remove(graph, np.array([False, False, True])))

    assert links(graph, "thread") == [(0, 1, 3, 0), (1, 0, 6, 1)]


def test_whoever_waited_for_it_waits_for_the_one_before() -> None:
    """An event from a removed kernel comes from its predecessor; one into it reaches the next."""
    graph = literal(
        [(name, "kernel", 0, 5, None) for name in "axb"] + [("c", "kernel", 1, 5, None)] * 2,
        [(1, 4, "event", 2), (3, 1, "event", 4)],
    )
    graph = check(remove(graph, np.array([False, True, False, False, False])))

    assert links(graph, "event") == [(0, 3, 2, 0), (2, 1, 4, 0)]


def test_a_dependency_across_the_seam_keeps_its_distance() -> None:
    """The first task's predecessor lies one repetition earlier, so the shift grows."""
    graph = literal(
        [("x", "host", 0, 5, None), ("a", "host", 0, 5, None), ("c", "host", 1, 5, None)],
        [(0, 2, "fork", 1)],
        wrap=True,
    )
    graph = check(remove(graph, np.array([True, False, False])))

    assert links(graph, "fork") == [(0, 1, 1, 1)]


def test_a_lane_may_become_empty() -> None:
    """Nothing is left to wait for, and no edge dangles."""
    graph = literal(
        [("x", "host", 0, 5, None), ("y", "host", 0, 5, None), ("c", "host", 1, 5, None)],
        [(0, 2, "fork", 1)],
        wrap=True,
    )
    graph = check(remove(graph, np.array([True, True, False])))

    assert graph.tasks["name"].tolist() == ["c"]
    assert links(graph, "thread", "fork") == [(0, 0, 0, 1)]


def test_removing_nothing_changes_nothing() -> None:
    """The very same graph comes back."""
    graph = two_kernels()

    assert remove(graph, np.zeros(4, bool)) is graph
