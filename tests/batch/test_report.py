"""Batches and comparisons as text and as JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from foretrace.batch.compare import judge
from foretrace.batch.report import LISTED, SHOWN
from foretrace.batch.run import Batch
from foretrace.report.forms import as_json, as_text
from tests.support.measured.studies import row

GOOD = replace(
    row("a", before_ns=2e6, replayed_ns=2e6, predicted_ns=1e6, low_ns=9e5, high_ns=2e6),
    evidence="amp: 2 pairs",
)
FAILED = row("b", error="why not", predicted_ns=None, low_ns=None, samples=None, before_ns=None)


def batch(*rows: object) -> Batch:
    """Return a batch with *rows*."""
    return Batch(tuple(rows), Path("out/results.parquet"), known=1, unwritten=0)  # type: ignore[arg-type]


def test_a_batch_as_text() -> None:
    """A line per prediction, the failures with their reasons, and where the table is."""
    assert as_text(batch(GOOD, FAILED)).splitlines() == [
        "2 items: 1 predicted, 1 failed, 1 known from before",
        "what-if  recording  measured  predicted        90 % interval  speed-up  status",
        "  amp    a          2.000 ms   1.000 ms  0.900 ms … 2.000 ms     2.00x  validated",
        "Tested by",
        "  - amp: 2 pairs",
        "Failed",
        "  - b, amp: why not",
        "wrote out/results.parquet",
    ]


def test_doubts_come_before_the_predictions() -> None:
    """Once where every what-if of a recording has them, else with the what-if; codes beside."""
    doubts = [{"code": "replay-off", "text": "off by 9%", "place": "step 3"}]
    other = [*doubts, {"code": "many-times", "text": "50 times as fast", "place": ""}]
    rows = [replace(GOOD, doubts=json.dumps(each)) for each in (doubts, other)]
    report = batch(rows[0], replace(rows[1], scenario="tf32"))

    shown = as_text(report).splitlines()

    assert shown[1:4] == [
        "Doubts",
        "  - a: replay-off, step 3: off by 9%",
        "  - a, tf32: many-times: 50 times as fast",
    ]
    assert shown[6].endswith("validated, replay-off, many-times")
    assert json.loads(as_json(report))["items"][0]["doubts"] == doubts


def test_many_predictions_are_counted() -> None:
    """A text of thousands of lines is read by nobody."""
    shown = as_text(batch(*[GOOD] * (SHOWN + 3)))

    assert shown.count("2.00x") == SHOWN
    assert "\n  3 more in the table\n" in shown


def test_many_failures_are_counted() -> None:
    """The table has all of them."""
    shown = as_text(batch(*[FAILED] * (LISTED + 2)))

    assert shown.count("why not") == LISTED
    assert "  - 2 more" in shown


def test_a_batch_as_json() -> None:
    """Times in ms; unknown is null."""
    found = json.loads(as_json(batch(GOOD, FAILED)))

    assert found["items"][0] == {
        "recording": "a",
        "model": "a",
        "scenario": "amp",
        "doubts": [],
        "measured_step_ms": 2.0,
        "predicted_step_ms": 1.0,
        "speedup": 2.0,
        "interval_ms": [0.9, 2.0],
        "measured_after_ms": 0.00005,
        "status": "validated",
        "evidence": ["amp: 2 pairs"],
        "error": None,
    }
    assert found["items"][1]["speedup"] is None
    assert found["items"][1]["interval_ms"] is None
    assert (found["failed"], found["known"], found["unwritten"]) == (1, 1, 0)


def test_a_comparison_as_text() -> None:
    """A line per group, and the verdict."""
    rows = [row("a"), row("b", predicted_ns=50.0, paper_ns=60.0)]
    shown = as_text(judge(rows, rows)).splitlines()

    assert shown[0] == "2 items judged; 0 inconclusive, 0 not foreseeable, 0 not measured, 0 failed"
    assert shown[2].split() == ["all", "2", "5.0", "5.0", "9.0", "10.0", "100%", "100.0", "20.0"]
    assert shown[-2].split() == ["b", "1", "0.0", "0.0", "0.0", "0.0", "100%", "100.0", "20.0"]
    assert shown[-1] == "Not worse than the reference"
    assert "reference" not in as_text(judge(rows))
    assert "Inconclusive" not in as_text(judge(rows))
    assert "Worse than the reference" in as_text(judge(rows[:1], rows))


def test_doubtful_items_are_named_with_the_reason() -> None:
    """Beside what their prediction would be off by; JSON has the same sentences."""
    found = judge([row("a"), row("noisy", noise=0.15)])
    said = "noisy, amp: its repeats drift by 15.0%; prediction off by +10.0%"

    assert as_text(found).splitlines()[-2:] == ["Inconclusive", f"  - {said}"]
    assert json.loads(as_json(found))["doubts"] == [said]
    assert json.loads(as_json(found))["inconclusive"] == 1


def test_a_comparison_as_json() -> None:
    """Errors in percent; the verdict is a list of sentences, or null."""
    found = json.loads(as_json(judge([row("a")])))

    assert found["all"] == {
        "group": "all",
        "items": 1,
        "inside": 1,
        "mean_pct": 10.0,
        "median_pct": 10.0,
        "p90_pct": 10.0,
        "worst_pct": 10.0,
        "no_change_pct": 100.0,
        "paper_pct": None,
    }
    assert found["worse"] is None
    assert json.loads(as_json(judge([row("a")], [row("a")])))["worse"] == []
