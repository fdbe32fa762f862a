"""What the accuracy page says of drawn jobs, from tables written out here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from benchmarks.accuracy.drawn_jobs import drawn_section, drawn_sentences, read_table

if TYPE_CHECKING:
    from pathlib import Path


def row(name: str, said: float, *, held_out: bool = False, problem: str = "") -> dict[str, Any]:
    """Return a row of the truth set: a step of 100 ns becomes one of 50, *said* was predicted."""
    return {
        "name": name,
        "architecture": name[0],
        "change": "amp",
        "held_out": held_out,
        "problem": problem,
        "base_ns": 100.0,
        "after_ns": 50.0,
        "noise": 0.02,
        "rules_ns": said,
        "rules_low_ns": 0.9 * said,
        "rules_high_ns": 1.1 * said,
        "rules_from_ns": 100.0,
        "rules_status": "unvalidated",
    }


def test_each_set_has_a_sentence() -> None:
    """Held-out rows count once they were looked at."""
    tuned = [row("a-1", 51.0), row("a-2", 55.0), row("b", 50.0), row("b", 50.0, problem="killed")]
    table = pd.DataFrame([*tuned, row("c", float("nan"), held_out=True)])
    seen = pd.DataFrame([*tuned, row("c", 60.0, held_out=True)])

    (only,) = drawn_sentences(table)
    assert "3 jobs of 2 architectures" in only
    assert "median |error| 2.0% (9 of 10 within 8.4%) by rules over 3 answers" in only
    assert "truths known to 2.0%" in only
    assert "20.0%" in drawn_sentences(seen)[1]
    assert "- 1 not measured: killed" in drawn_section(table)


def test_without_a_table_nothing_is_said(tmp_path: Path) -> None:
    """The truth set is measured by a command of its own."""
    assert read_table(tmp_path / "truth.parquet") is None
    assert drawn_sentences(None) == drawn_section(None) == []
