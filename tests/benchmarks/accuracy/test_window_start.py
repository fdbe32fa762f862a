"""A recording opened later or closed earlier answers alike, and the page says where it does not."""

from __future__ import annotations

from benchmarks.accuracy.rows import PartRow
from benchmarks.accuracy.tables import parts
from benchmarks.accuracy.window_start import compare_parts, cut
from tests.support.recordings.events import call, kernel, op, steps, sync, trace

STEP = [
    op("aten::mm", 0, 20),
    call(5, 5, 1),
    kernel(15, 300, 1),
    call(30, 5, 2),
    kernel(316, 500, 2, name="relu"),
    sync(40, 820),
]


def test_parts_of_equal_steps_answer_alike() -> None:
    """Every part answers as the whole recording does of the same steps, and of all."""
    rows = list(compare_parts("equal", trace(steps(9, 1_000, STEP))))

    assert [row.dropped for row in rows] == [(1, 0), (2, 0), (4, 0), (0, 1), (0, 2), (1, 1)]
    assert max(row.off for row in rows) < 0.001
    assert max(row.off_whole for row in rows) < 0.001
    assert not any(row.doubts or row.problem for row in rows)


def test_a_part_holds_what_was_launched_in_it() -> None:
    """Of kernels that run on after the end, those launched before it stay."""
    whole = trace([*steps(2, 100, [call(90, 5, 1), kernel(110, 50, 1)])])
    part = cut(whole, 0, 100_000).events

    assert part["name"].tolist() == ["ProfilerStep#0", "cudaLaunchKernel", "ProfilerStep#1", "gemm"]


def test_recordings_without_steps_have_no_parts() -> None:
    """There is nothing to leave out."""
    assert not list(compare_parts("one", trace(STEP)))


def test_the_page_names_the_worst_part_of_each_recording() -> None:
    """A part that answers otherwise, whether doubted or not, and one that cannot be asked."""
    two = (10.0, 20.0)
    rows = [
        PartRow("a", (1, 0), two, two, two),
        PartRow("a", (2, 0), (12.0, 20.0), two, (10.0, 21.0), ("outlier-step",)),
        PartRow("b", (1, 0), two, problem="no work"),
    ]
    text = "\n".join(parts(rows))

    assert "In 1 of 2 parts all answers are within 1%; of the 1 others, 1 carry a doubt." in text
    assert "| a | 2 | 1 | 5.0% | 2 first, 0 last | 16.7% | outlier-step |" in text
    assert "| b | 1 | 0 | | 1 first, 0 last | | no work |" in text
    assert parts([]) == []
