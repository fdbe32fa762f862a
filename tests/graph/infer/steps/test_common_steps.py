"""Steps of several ranks are paired by their numbers, else by their time."""

from __future__ import annotations

import numpy as np
import pytest

from foretrace.errors import GraphError
from foretrace.graph.infer.steps.common_steps import find_common_steps, intersect_spans
from foretrace.graph.infer.steps.steps import StepBounds


def markers(starts: list[int], first: int | None = None) -> StepBounds:
    """Return steps that begin at *starts*, numbered from *first* on."""
    rows = np.arange(len(starts))
    numbers = None if first is None else rows + first
    return StepBounds(np.array(starts), rows, 1, "step range", "step #", numbers)


def test_numbers_pair_steps() -> None:
    """Steps 10 to 14 and 12 to 15: 12 to 14 are common, with two whole steps."""
    first = markers([0, 100, 200, 300, 400], 10)
    other = markers([205, 305, 405, 505], 12)

    assert find_common_steps([first, other]) == [(2, 4), (0, 2)]


def test_time_pairs_steps_without_numbers() -> None:
    """The same, by when they began."""
    first, other = markers([0, 100, 200, 300, 400]), markers([205, 305, 405, 505])

    assert find_common_steps([first, other]) == [(2, 4), (0, 2)]


def test_numbers_that_time_contradicts_do_not_count() -> None:
    """The second rank's profiler was started anew: its step 0 is the other's step 10."""
    first, other = markers([0, 100, 200, 300], 10), markers([3, 103, 203, 303], 0)

    assert find_common_steps([first, other]) == [(0, 3), (0, 3)]


def test_a_rank_with_a_single_step_has_nothing_to_pair() -> None:
    """Nor have the others then."""
    assert find_common_steps([markers([0, 100]), None]) == [None, None]


def test_ranks_without_a_common_step_are_refused() -> None:
    """Steps 0 to 2 and 7 to 9."""
    with pytest.raises(GraphError, match="no step was recorded on all of them"):
        find_common_steps([markers([0, 100, 200], 0), markers([700, 800, 900], 7)])


def test_ranks_that_lost_events_of_different_steps_keep_all_common_ones() -> None:
    """One rank kept steps 0 to 2 of six, the other 2 to 6: a single step shows no period."""
    assert intersect_spans([(0, 6), (2, 8)], [(0, 3), (4, 8)]) == [(2, 6), (4, 8)]


def test_stages_of_a_pipeline_begin_a_step_at_other_moments() -> None:
    """The third stage begins a step a whole step later than the first, and 30 µs more."""
    first, third = markers([0, 100, 200, 300], 4), markers([0, 230, 330, 430], 4)

    assert find_common_steps([first, third]) == [(0, 3), (0, 3)]
