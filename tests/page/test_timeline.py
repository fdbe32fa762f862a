"""What a page draws of a timeline: few blocks, and no time lost in them."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from foretrace.graph.literal import literal
from foretrace.page import timeline as page_timeline
from foretrace.page.timeline import SORTS, Spans, merge, timeline_data
from foretrace.replaying.replay import replay

GRAPH = literal(
    [
        ("aten::mm", "host", 0, 5_000, "forward"),
        ("cudaLaunchKernel", "launch", 0, 2_000, "forward"),
        ("ampere_sgemm_128x64_nn", "kernel", 1, 30_000, "forward"),
    ],
    [(1, 2, "launch", 4_000)],
    wrap=True,
)


def spans(*intervals: tuple[int, int, int]) -> Spans:
    """Return spans from (row, start, end)."""
    row, start, end = (np.array(column, np.int64) for column in zip(*intervals, strict=True))
    numbers = np.arange(len(row))
    return Spans(row, start, end, numbers, numbers, np.ones_like(row), end - start)


def blocks(row: dict[str, Any]) -> list[list[int]]:
    """Return the blocks of a row, one list each."""
    return np.reshape(row["blocks"], (-1, 6)).tolist()


def test_short_neighbours_become_one_block_named_for_the_longest() -> None:
    """Long spans stay; a block knows how many it stands for and how long they are busy."""
    found = merge(spans((0, 0, 1), (0, 1, 3), (0, 3, 4), (0, 100, 200), (1, 0, 1)), 3)

    assert found.start_ns.tolist() == [0, 100, 0]
    assert found.end_ns.tolist() == [4, 200, 1]
    assert found.count.tolist() == [3, 1, 1]
    assert found.busy_ns.tolist() == [4, 100, 1]
    assert found.name.tolist() == [1, 3, 4]


def test_few_spans_stay_as_they_are() -> None:
    """Nothing is joined without need."""
    given_ = spans((0, 0, 1), (0, 1, 2))

    assert merge(given_, 2) is given_


@given(
    lengths=st.lists(
        st.tuples(st.integers(0, 10_000), st.integers(0, 50_000)), min_size=1, max_size=80
    ),
    rows=st.integers(1, 4),
    most=st.integers(1, 40),
)
def test_joining_loses_no_task_and_no_time(
    lengths: list[tuple[int, int]], rows: int, most: int
) -> None:
    """Counts and busy times add up, rows stay apart, blocks of a row do not overlap."""
    moment, intervals = 0, []
    for number, (gap, length) in enumerate(lengths):
        moment += gap
        intervals.append((number % rows, moment, moment + length))
        moment += length
    given_ = spans(*sorted(intervals))
    found = merge(given_, most)

    assert len(found.row) <= max(most, len(np.unique(given_.row)))
    assert found.count.sum() == len(intervals)
    for row in range(rows):
        own, here = given_.row == row, found.row == row
        assert found.busy_ns[here].sum() == given_.busy_ns[own].sum()
        assert (found.start_ns[here][1:] >= found.end_ns[here][:-1]).all()


def test_rows_are_the_critical_path_and_the_lanes() -> None:
    """The kernel takes the whole step of 30 µs, from one window into the next."""
    drawn = timeline_data(replay(GRAPH), "before")

    assert [row["name"] for row in drawn["rows"]] == [
        "critical path",
        "rank 0 thread 100 (main)",
        "rank 0 stream 8 (compute)",
    ]
    assert drawn["step_ms"] == 0.03
    host = [(drawn["names"][b[3]], SORTS[b[4]], b[1]) for b in blocks(drawn["rows"][1])]
    assert host == [("aten::mm", "host", 5_000), ("cudaLaunchKernel", "launch", 2_000)]
    kernel = [(SORTS[b[4]], b[0], b[1]) for b in blocks(drawn["rows"][2])]
    assert [name for name, _, _ in kernel] == ["gemm", "gemm"]
    assert kernel[0][1] == 0
    assert kernel[0][2] == kernel[1][1] == 30_000 - kernel[1][2]
    assert (drawn["rows"][2]["work_ms"], drawn["rows"][2]["idle_ms"]) == (0.03, 0.0)
    assert sum(block[1] for block in blocks(drawn["rows"][0])) == 30_000


def test_waiting_on_the_critical_path_says_for_what() -> None:
    """A launch latency that binds is a block of its own, before what it delays."""
    tasks = [("call", "launch", 0, 1_000, None), ("gemm", "kernel", 1, 2_000, None)]
    graph = literal(tasks, [(0, 1, "launch", 5_000), (1, 0, "return", 0)], wrap=True)
    drawn = timeline_data(replay(graph), "before")

    sorts = {SORTS[block[4]] for block in blocks(drawn["rows"][0])}
    assert "waiting: launch latency" in sorts


def test_lanes_that_are_not_drawn_are_counted(monkeypatch: Any) -> None:
    """The lanes with most work are drawn, and the page says how many are not."""
    monkeypatch.setattr(page_timeline, "MOST_LANES", 1)
    drawn = timeline_data(replay(GRAPH), "before")

    assert [row["name"] for row in drawn["rows"][1:]] == ["rank 0 stream 8 (compute)"]
    assert drawn["hidden_lanes"] == 1
