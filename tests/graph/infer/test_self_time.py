"""Nested intervals as consecutive segments: nothing overlaps, nothing is lost."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from foretrace.graph.infer.self_time import nest

Span = tuple[int, int, int, bool]
"""Thread, start, end, and whether it stays whole."""


def segments(*spans: Span) -> list[tuple[int, int, int]]:
    """Return event, start and end of the segments of *spans*."""
    thread, start, end, whole = (np.array(column) for column in zip(*spans, strict=True))
    found = nest(thread, start, end, whole.astype(bool))
    return list(
        zip(found.event.tolist(), found.start_ns.tolist(), found.end_ns.tolist(), strict=True)
    )


def test_time_of_an_event_is_what_its_children_leave() -> None:
    """Three levels."""
    assert segments((1, 0, 10, False), (1, 2, 8, False), (1, 4, 6, False)) == [
        (0, 0, 2),
        (1, 2, 4),
        (2, 4, 6),
        (1, 6, 8),
        (0, 8, 10),
    ]


def test_event_that_is_all_children_leaves_no_segment() -> None:
    """The child covers it."""
    assert segments((1, 0, 10, False), (1, 0, 10, False)) == [(1, 0, 10)]


def test_whole_event_swallows_what_lies_inside() -> None:
    """An API call is one task."""
    assert segments((1, 0, 10, True), (1, 2, 8, False), (1, 12, 12, True)) == [
        (0, 0, 10),
        (2, 12, 12),
    ]


def test_call_that_begins_just_before_another_ends_follows_it() -> None:
    """A synchronisation begins 1 before the launch ends, and 3 before its operator does."""
    operator, launch, sync = (1, 0, 20, False), (1, 8, 18, True), (1, 17, 90, True)

    assert segments(operator, launch, sync) == [(0, 0, 8), (1, 8, 18), (0, 18, 20), (2, 20, 90)]


def test_call_that_ends_just_after_the_one_around_it_lies_inside() -> None:
    """A driver's call inside a runtime's, both in whole µs."""
    assert segments((1, 0, 10, True), (1, 2, 11, True)) == [(0, 0, 10)]


def test_next_thread_starts_afresh() -> None:
    """Equal times on two threads."""
    assert segments((1, 0, 10, False), (2, 5, 6, False)) == [(0, 0, 10), (1, 5, 6)]


def test_no_events() -> None:
    """An empty recording has no segments."""
    none = np.empty(0, np.int64)

    assert len(nest(none, none, none, none.astype(bool)).event) == 0


@given(
    st.lists(
        st.tuples(st.integers(0, 1), st.integers(0, 50), st.integers(0, 30), st.booleans()),
        max_size=12,
    )
)
def test_segments_never_overlap_and_cover_the_thread(
    drawn: list[tuple[int, int, int, bool]],
) -> None:
    """Together they are as long as the union of the events that lie on the thread."""
    spans = sorted((t, s, s + length, w) for t, s, length, w in drawn)
    spans.sort(key=lambda span: (span[0], span[1], -span[2]))
    if not spans:
        return
    thread = np.array([span[0] for span in spans])
    found = segments(*spans)
    for number in (0, 1):
        mine = [(start, end) for event, start, end in found if thread[event] == number]
        covered = {x for t, s, e, _ in spans if t == number for x in range(s, e)}

        assert all(before[1] <= after[0] for before, after in pairwise(mine))
        assert {x for start, end in mine for x in range(start, end)} <= covered
