"""Events as arrays: one rank is cut out of several."""

from __future__ import annotations

import re

import numpy as np

from foretrace.graph.infer.events import find_last, select_events
from tests.support.recordings.events import op, trace


def test_events_of_one_rank() -> None:
    """Rows are numbered anew; names keep their codes."""
    recording = trace([op("a", 0, 1), op("b", 1, 1, rank=1), op("c", 2, 1, rank=1)])
    events = select_events(recording.events, 1)

    assert [events.names[code] for code in events.name] == ["b", "c"]
    assert events.frame.index.tolist() == [0, 1]
    assert len(select_events(recording.events)) == 3


def test_rows_by_kind_and_name() -> None:
    """Both are told by category; rows can be picked first."""
    events = select_events(trace([op("aten::mm", 0, 1), op("aten::add", 2, 1)]).events)

    assert events.is_kind("op", "runtime").tolist() == [True, True]
    assert events.is_kind("kernel").tolist() == [False, False]
    assert events.named(re.compile("mm$")).tolist() == [True, False]
    assert events.named(re.compile("mm$"), np.array([1])).tolist() == [False]


def test_no_key_is_found_among_none() -> None:
    """Without keys every answer is −1."""
    none = np.empty(0, np.int64)

    assert find_last(none, np.array([3, -1])).tolist() == [-1, -1]
