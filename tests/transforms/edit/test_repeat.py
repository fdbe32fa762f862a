"""Repeating part of a step: copies follow one another on every lane."""

from __future__ import annotations

import numpy as np
import pytest

from foretrace.errors import TransformError
from foretrace.graph.check import check
from foretrace.graph.literal import literal
from foretrace.replaying.replay import replay
from foretrace.transforms.edit.repeat import repeat
from tests.support.edges import links


def test_copies_stand_between_block_and_rest() -> None:
    """A B u with A B repeated: A B A' B' u, and the window closes from u."""
    graph = literal([(name, "host", 0, 5, None) for name in "abu"], lag_ns=3, wrap=True)
    graph, copies = repeat(graph, np.array([True, True, False]), 2)

    assert [rows.tolist() for rows in copies] == [[0, 1], [3, 4]]
    assert links(check(graph), "thread") == [
        (0, 1, 3, 0),
        (1, 3, 3, 0),
        (2, 0, 3, 1),
        (3, 4, 3, 0),
        (4, 2, 3, 0),
    ]


def test_what_lies_inside_runs_once() -> None:
    """A z B u: z runs with the first copy only."""
    graph = literal([(name, "host", 0, 5, None) for name in "azbu"], lag_ns=3)
    graph, _ = repeat(graph, np.array([True, False, True, False]), 2)

    assert links(check(graph), "thread") == [
        (0, 1, 3, 0),
        (1, 2, 3, 0),
        (2, 4, 0, 0),
        (4, 5, 6, 0),
        (5, 3, 3, 0),
    ]


def test_a_kernel_is_repeated_with_its_call() -> None:
    """Selecting the kernel selects the call, and each copy launches its own kernel."""
    graph = literal(
        [("launch", "launch", 0, 5, None), ("k", "kernel", 1, 9, None)], [(0, 1, "launch", 6)]
    )
    graph, _ = repeat(graph, np.array([False, True]), 2)

    assert links(check(graph), "launch") == [(0, 1, 6, 0), (2, 3, 6, 0)]
    assert links(graph, "stream") == [(1, 3, 0, 0)]
    assert links(graph, "thread") == [(0, 2, 0, 0)]


def test_the_next_copy_waits_where_the_rest_waited() -> None:
    """Main hands to a helper and waits at u; so the second copy waits for the first helper."""
    graph = literal(
        [("fwd", "host", 0, 5, None), ("u", "host", 0, 5, None), ("bwd", "host", 1, 9, None)],
        [(0, 2, "fork", 1), (2, 1, "join", 1)],
    )
    graph, _ = repeat(graph, np.array([True, False, True]), 2)

    assert links(check(graph), "fork") == [(0, 2, 1, 0), (3, 4, 1, 0)]
    assert links(graph, "join") == [(2, 3, 1, 0), (4, 1, 1, 0)]


def test_waits_inside_a_block_stay_with_their_copy() -> None:
    """Helper → z → b on main: the copy of the helper holds up the copy of b; so does z's fork."""
    graph = literal(
        [(name, "host", 0, 5, None) for name in "azb"]
        + [("h", "host", 1, 9, None), ("g", "host", 2, 9, None)],
        [(3, 1, "join", 1), (1, 4, "fork", 2)],
    )
    graph, _ = repeat(graph, np.array([True, False, True, True, True]), 2)

    assert links(check(graph), "join") == [(3, 1, 1, 0), (7, 6, 1, 0)]
    assert links(graph, "fork") == [(1, 4, 2, 0), (5, 8, 2, 0)]


def test_starts_keep_the_order_of_calls() -> None:
    """Copies start after their originals, and what follows the block after the last copy."""
    graph = literal([(name, "host", 0, 5, None) for name in "abu"])
    graph, _ = repeat(graph, np.array([True, True, False]), 3)
    by_start = graph.tasks.sort_values("start_ns")["name"].tolist()

    assert by_start == ["a", "b", "a", "b", "a", "b", "u"]


def test_once_is_the_graph_itself() -> None:
    """Repeating once, or nothing, changes nothing."""
    graph = literal([("a", "host", 0, 5, None)])

    assert repeat(graph, np.array([True]), 1)[0] is graph
    assert repeat(graph, np.array([False]), 3)[0] is graph


def test_a_graph_too_large_for_memory_is_refused() -> None:
    """A typing error in k must not fill the memory."""
    graph = literal([("a", "host", 0, 5, None), ("u", "host", 0, 5, None)])

    with pytest.raises(TransformError, match=r"make 1e\+30 tasks, more than 10,000,000"):
        repeat(graph, np.array([True, False]), 10**30)


def test_a_loader_labelled_a_step_early_feeds_copy_by_copy() -> None:
    """Main of step 1 starts the load labelled step 0, which main of step 1 ends by using.

    Twice per step: main 1 starts the last load of step 0, main 1' the first of step 1.
    """
    graph = literal(
        [(name, "host", 0, 5, None) for name in ("a0", "b0", "a1", "b1")]
        + [("load0", "host", 1, 9, "load"), ("load1", "host", 1, 9, "load")],
        [(2, 4, "fork", 1), (4, 3, "join", 1)],
        columns={"step": np.array([0, 0, 1, 1, 0, 1], np.int32)},
        wrap=True,
    )
    graph, copies = repeat(graph, np.ones(6, bool), 2)

    assert copies[1].tolist() == [6, 7, 8, 9, 10, 11]
    assert links(check(graph), "fork") == [(2, 10, 1, 0), (8, 5, 1, 0)]
    assert replay(graph).step_ns > 0
