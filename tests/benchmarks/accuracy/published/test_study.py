"""Published changes: what is asked, what stands on the page, and the sign of layouts on V100."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.accuracy import __main__ as accuracy
from benchmarks.accuracy.published.page import published_page
from benchmarks.accuracy.published.study import (
    PublishedRow,
    find_group,
    list_tuned_on,
    run_published,
)
from tests.support.paths import PUBLIC, SHARED

if TYPE_CHECKING:
    from pathlib import Path

TABLE = SHARED / "reference" / "published-speedups.tsv"
COLUMNS = [
    *("id", "source", "model", "gpus", "change"),
    *("ratio", "matches_trace", "closeness", "caveats", "whatif"),
]


def row(name: str, published: float, predicted: float, **given: object) -> PublishedRow:
    """Return a row whose interval is 0.1 to either side."""
    values: dict[str, object] = {
        "source": "them/README.md",
        "model": "net",
        "devices": "1x V100",
        "change": "AMP",
        "group": find_group("exact job"),
        "trace": "a/b.json.gz",
        "asked": "amp",
        "tuned_on": False,
        "interval": (predicted - 0.1, predicted + 0.1),
        "status": "unvalidated",
    }
    return PublishedRow(name, published=published, predicted=predicted, **{**values, **given})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("closeness", "group"),
    [
        ("exact job", "The exact job"),
        ("same model, same GPU, other batch", "The same model and GPU at another batch"),
        ("same model, recorded GPU same, other batch", "From V100 to another GPU"),
        ("other model", "The rest: another framework, model, or a GPU other than the recorded one"),
    ],
)
def test_rows_are_grouped_by_how_close_their_trace_is(closeness: str, group: str) -> None:
    """The words of the table decide."""
    assert find_group(closeness) == group


def test_the_page_counts_what_holds() -> None:
    """Median error, intervals, signs beyond the noise; what is not asked stands apart."""
    rows = [
        row("T1", 0.5, 0.55),
        row("T2", 1.2, 0.9, tuned_on=True),
        row("T3", 0.8, 0.0, problem="no trace"),
    ]
    text = published_page(rows)

    assert "| The exact job | 2 | 17.5% | 58.3% | 1 (50%) | 1 |" in text
    assert "| +10.0% | +100.0% | 0.450 … 0.650 | yes | unvalidated |" in text
    assert "| **no** | unvalidated, tuned on |" in text
    assert "| T3 | net, 1x V100 | AMP | 0.800 | no trace |" in text


def test_a_row_without_a_trace_or_a_question_says_why(tmp_path: Path) -> None:
    """Nothing is left out silently."""
    asked = ["T1", "s", "m", "g", "c", "0.5", "nowhere/this", "exact job", "", "amp"]
    table = tmp_path / "published.tsv"
    table.write_text(
        "\n".join("\t".join(line) for line in (COLUMNS, asked, ["T2", *asked[1:9], ""])) + "\n"
    )
    problems = [each.problem for each in run_published(table, tmp_path)]

    assert problems[0] == "no trace here: nowhere/this"
    assert "names no what-if" in problems[1]


def test_without_the_table_the_page_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason is said."""
    page = tmp_path / "page.md"
    page.write_text("as it was")
    monkeypatch.setattr(accuracy, "PUBLISHED", page)
    accuracy.write_published(tmp_path / "none.tsv", tmp_path)

    assert page.read_text() == "as it was"
    assert "left page.md alone: no " in capsys.readouterr().out


def test_rows_that_chose_a_range_say_so() -> None:
    """They are evidence of nothing."""
    assert {"T017", "T051", "P13"} <= list_tuned_on()


@pytest.mark.slow
@pytest.mark.skipif(not TABLE.is_file(), reason=f"the published changes are not here: {TABLE}")
def test_layouts_on_a_v100_have_the_right_sign() -> None:
    """Slower in fp32, faster under AMP than AMP alone."""
    fp32, amp, both = run_published(TABLE, PUBLIC, lambda name: name in {"T054", "T065", "T053"})
    predicted = {each.name: each.predicted for each in (fp32, amp, both)}

    assert predicted["T054"] > 1.1
    assert predicted["T053"] < 0.9 * predicted["T065"]
