"""Host tasks: operators become segments of their own time; calls stay whole; steps are marked."""

from __future__ import annotations

import numpy as np

from foretrace.graph.infer.events import select_events
from foretrace.graph.infer.tasks.host_tasks import cut_host_tasks, find_enclosing
from tests.support.recordings.events import MULTI_FETCH, call, microseconds, note, op, parsed, trace


def test_nested_operators_become_consecutive_segments() -> None:
    """The outer operator keeps the time before, between and after what it calls."""
    rows = [op("outer", 0, 20), op("inner", 5, 5), call(12, 3)]
    events, host, _ = parsed(rows)

    assert [events.names[events.name[row]] for row in host.event] == [
        "outer",
        "inner",
        "outer",
        "cudaLaunchKernel",
        "outer",
    ]
    assert microseconds(host.start_ns) == [0, 5, 10, 12, 15]
    assert microseconds(host.end_ns) == [5, 10, 12, 15, 20]
    assert host.operator.tolist() == [0, 1, 0, 0, 0]
    assert host.parent.tolist() == [-1, 0, 0]


def test_call_inside_a_call_belongs_to_it() -> None:
    """A driver call inside a runtime call makes no task of its own."""
    _, host, _ = parsed([call(0, 10), call(2, 5, name="cuLaunchKernel")])

    assert microseconds(host.end_ns) == [10]


def test_call_of_no_length_is_still_a_task() -> None:
    """Recordings in whole microseconds have them."""
    _, host, _ = parsed([op("aten::mm", 0, 10), call(0, 0), call(4, 0)])

    assert microseconds(host.start_ns) == [0, 0, 4, 4]
    assert host.is_call.tolist() == [True, False, True, False]


def test_call_that_covers_its_operator_lies_inside() -> None:
    """Both begin and end together: the operator is outside, whatever came first in the file."""
    _, host, _ = parsed([call(0, 10), op("aten::mm", 0, 10)])

    assert host.is_call.tolist() == [True]
    assert host.operator.tolist() == [1]


def test_end_beyond_the_outer_operator_is_cut() -> None:
    """Clock noise must not make segments of one thread overlap."""
    _, host, _ = parsed([op("outer", 0, 10), op("inner", 8, 5)])

    assert microseconds(host.start_ns) == [0, 8]
    assert microseconds(host.end_ns) == [8, 10]


def test_annotations_only_group() -> None:
    """Time directly in an annotation is a gap, also where an old recording calls it an operator."""
    rows = [note("## forward ##", 0, 10), op("Optimizer.step#Adam.step", 12, 8), op("mul_", 14, 2)]
    _, host, _ = parsed(rows)

    assert microseconds(host.start_ns) == [14]


def test_ranges_of_a_loader_are_work() -> None:
    """What a loader does inside its ranges is not traced otherwise."""
    _, host, _ = parsed([note(MULTI_FETCH, 0, 5), note("[DALI][Executor] RunCPU", 6, 5)])

    assert microseconds(host.end_ns - host.start_ns) == [5, 5]


def test_step_marker_is_a_task_without_length() -> None:
    """It comes first among what begins at that moment."""
    rows = [op("aten::mm", 0, 20), note("ProfilerStep#1", 0, 10)]
    events, host, _ = parsed(rows, markers=[1])

    assert [events.names[events.name[row]] for row in host.event] == ["ProfilerStep#1", "aten::mm"]
    assert microseconds(host.end_ns) == [0, 20]


def test_threads_are_kept_apart_in_any_order() -> None:
    """Rows of two threads that interleave come out thread by thread."""
    rows = [op("a", 4, 2, thread=2), op("b", 0, 10), op("c", 1, 3, thread=2), op("d", 12, 1)]
    _, host, _ = parsed(rows)

    assert host.thread.tolist() == [1, 1, 2, 2]
    assert microseconds(host.start_ns) == [0, 12, 1, 4]


def test_nearest_flagged_operator() -> None:
    """Looked for from the task's own operator upwards."""
    _, host, _ = parsed([op("outer", 0, 20), op("inner", 5, 5), op("alone", 30, 5)])

    assert find_enclosing(host, np.array([True, False, False])).tolist() == [0, 0, 0, -1]
    assert find_enclosing(host, np.array([False, True, True])).tolist() == [-1, 1, -1, 2]


def test_rows_in_any_order() -> None:
    """A table that was not sorted gives the same tasks."""
    frame = trace([op("outer", 0, 20), op("inner", 5, 5), call(7, 1)]).events
    events = select_events(frame.iloc[::-1].reset_index(drop=True))
    host = cut_host_tasks(events, np.empty(0, np.int64))

    assert microseconds(host.start_ns) == [0, 5, 7, 8, 10]
    assert host.event.tolist() == [2, 1, 0, 1, 2]
