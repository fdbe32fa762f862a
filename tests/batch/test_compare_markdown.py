"""The page of a comparison: every item stands in it once, beside the errors of its groups."""

from __future__ import annotations

from foretrace.batch.compare import judge
from foretrace.batch.compare_markdown import render_markdown
from foretrace.batch.rows import read_rows
from tests.support.measured.studies import row
from tests.support.paths import ROOT

ROWS = [
    row("a/amp", model="a", before_ns=2e6, replayed_ns=2e6, after_ns=1e6, predicted_ns=1.1e6),
    row("a/x2", model="a", transforms="batch_size", scenario="batch_size(n=2)", predicted_ns=49.0),
    row("a/x4", model="a", transforms="batch_size", scenario="batch_size(n=4)", predicted_ns=52.0),
    row("b/amp", model="b", predicted_ns=50.0, paper_ns=60.0, noise=0.011),
    row("c/amp", model="c", noise=-0.153),
    row("d/amp", model="d", replayed_ns=110.0),
    row("e/compile", model="e", transforms="compile", scenario="compile"),
    row("f/amp", model="f", error="a | b", predicted_ns=None),
]


def section(title: str) -> list[str]:
    """Return the lines of a section of the page of `ROWS`."""
    _, found, rest = render_markdown(judge(ROWS)).partition(f"## {title}\n\n")

    assert found
    return rest.partition("\n\n")[0].splitlines()


def test_the_page_begins_with_what_it_comes_to() -> None:
    """Counts, errors, null models and intervals."""
    assert section("In short") == [
        "- 4 items judged; 2 inconclusive, 1 not foreseeable, 0 not measured, 1 failed.",
        "- |Error|: median 3.0%, mean 4.0%, 90th percentile 8.2%, worst 10.0%.",
        '- In the median "no change" is off by 100.0%, the paper\'s constants by 20.0%.',
        "- 3 of 4 measurements lie inside their interval.",
    ]


def test_groups_are_lines_and_all_is_the_last() -> None:
    """What the paper's constants do not cover is empty."""
    found = section("By what-if")

    assert found[0] == (
        "| \\|error\\|, % | items | mean | median | p90 | worst | inside | no change | paper |"
    )
    assert found[2:] == [
        "| amp | 2 | 5.0 | 5.0 | 9.0 | 10.0 | 50% | 100.0 | 20.0 |",
        "| batch_size | 2 | 3.0 | 3.0 | 3.8 | 4.0 | 100% | 100.0 |  |",
        "| all | 4 | 4.0 | 3.0 | 8.2 | 10.0 | 75% | 100.0 | 20.0 |",
    ]
    assert [line.split(" | ")[0] for line in section("By model")[2:]] == ["| a", "| b", "| all"]


def test_every_model_meets_every_what_if() -> None:
    """Two of one what-if side by side, doubtful ones in brackets, nothing where none was tried."""
    grid = render_markdown(judge(ROWS)).partition("inconclusive.\n\n| model")[2].splitlines()[2:6]

    assert grid == [
        "| a | +10.0 | -2.0 / +4.0 |",
        "| b | +0.0 |  |",
        "| c | (+10.0) |  |",
        "| d | (+10.0) |  |",
    ]


def test_items_are_listed_apart_by_what_they_are_worth() -> None:
    """Judged, in doubt and why, not foreseeable, failed."""
    assert section("Judged")[2:4] == [
        "| a/amp | `amp` | 2.00 | 1.00 | 1.10 | +10.0 | +100.0 | 0.0 |",
        "| a/x2 | `batch_size(n=2)` | 0.00 | 0.00 | 0.00 | -2.0 | +100.0 | 0.0 |",
    ]
    assert [line.rpartition(" | ")[2] for line in section("Inconclusive")[2:]] == [
        "its repeats drift by 15.3% |",
        "its replay without any change is off by +10.0% |",
    ]
    assert len(section("Not foreseeable")) == 3
    assert section("Failed") == ["- f/amp, `amp`: a | b"]


def test_empty_sections_are_left_out() -> None:
    """And a measurement without repeats has no noise."""
    found = render_markdown(judge([row("a|b", noise=None)]))

    assert [line for line in found.splitlines() if line.startswith("## ")] == [
        "## In short",
        "## By what-if",
        "## By model",
        "## Every model under every what-if",
        "## Judged",
    ]
    assert "| a\\|b | `amp` | 0.00 | 0.00 | 0.00 | +10.0 | +100.0 |  |" in found


def test_the_page_of_the_zoo_is_that_of_its_results() -> None:
    """Fourteen models under six changes, measured; half of the errors are at most 5 %."""
    found = judge(read_rows(ROOT / "traces" / "zoo-results.parquet"))

    assert (ROOT / "docs" / "zoo.md").read_text("utf-8") == render_markdown(found)
    assert found.total.median <= 0.05
    assert len(found.by_model) == 14
