"""Figures of the truth set, from tables written out here."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from benchmarks.truth import predictions
from benchmarks.truth.campaign import Visit
from benchmarks.truth.predictions import compare_sides, make_table
from benchmarks.truth.score import as_text, score
from benchmarks.truth.spec import DrawnJob, Sizes

if TYPE_CHECKING:
    from pathlib import Path

JOB = DrawnJob(
    "small",
    "loop",
    "moe",
    held_out=True,
    threads=1,
    batch_size=4,
    sizes=Sizes(8, 1, 8),
    changes=("batch_size",),
)


def _row(change: str, true: float, said: float, *, held_out: bool = False) -> dict[str, Any]:
    return {
        "change": change,
        "held_out": held_out,
        "problem": "",
        "base_ns": 100.0,
        "after_ns": true,
        "noise": 0.01,
        "rules_ns": said,
        "rules_low_ns": 0.9 * said,
        "rules_high_ns": 1.1 * said,
        "rules_from_ns": 80.0,
        "rules_status": "validated",
    }


def test_figures_of_one_way() -> None:
    """Errors, coverage, widths and signs, of all and of each what-if."""
    table = pd.DataFrame([_row("amp", 100.5, 80.0), _row("amp", 50.0, 52.0), _row("a+b", 200, 100)])
    scored = score(table).set_index(["set", "way", "what_if"])
    both = scored.loc[("tuned", "rules", "amp")]
    assert both["pairs"] == 2
    assert both["worst"] == pytest.approx(1 - 80 / 100.5)
    assert both["paced"] == pytest.approx((0.5 / 100.5 + 0.3) / 2)
    assert both["holds"] == both["validated_holds"] == 0.5
    assert both["width"] == pytest.approx(0.1)
    assert both["constant"] == pytest.approx(100.5 / 80 - 1)
    assert (both["sign"], both["clear"]) == (1.0, 1)
    assert scored.loc[("tuned", "rules", "two at once"), "pairs"] == 1
    assert scored.loc[("tuned", "calibrated", "all"), "pairs"] == 0
    assert "| tuned | rules | amp | 2 |" in as_text(score(table))


def test_noisy_and_refused_rows_are_counted() -> None:
    """A truth that its rounds leave open is no pair; a refusal is none, either."""
    noisy, refused = {**_row("amp", 1, 1), "noise": 0.5}, {**_row("amp", 1, 1), "rules_ns": None}
    row = score(pd.DataFrame([noisy, refused])).iloc[0]
    assert (row["pairs"], row["refused"], row["noisy"]) == (0, 1, 1)


def test_held_out_rows_are_scored_apart() -> None:
    """They appear where they have predictions, and only there."""
    shown = _row("amp", 100.0, 101.0, held_out=True)
    hidden = {**shown, "rules_ns": None}
    assert set(score(pd.DataFrame([shown]))["set"]) == {"tuned", "held out"}
    assert set(score(pd.DataFrame([hidden]))["set"]) == {"tuned"}


def _blocks(times: dict[str, list[int]]) -> list[dict[str, Any]]:
    return [
        {"side": side, "block": block, "process": 0, "step_ns": [ns], "faults": 2, "cpu_ns": ns}
        for side, all_ns in times.items()
        for block, ns in enumerate(all_ns)
    ]


def test_sides_are_compared_round_by_round() -> None:
    """A machine that is slow for a while is slow for both sides."""
    truth = {"blocks": _blocks({"base": [10, 20], "amp": [5, 10]}), "errors": {}, "others": 0.0}
    found = compare_sides(truth, "amp")
    assert found["after_ns"] == pytest.approx(found["base_ns"] / 2)
    assert found["noise"] == pytest.approx(0.0)
    assert found["base_steps_ns"] == [[10], [20]]
    failed = {**truth, "errors": {"amp": "RuntimeError: no"}}
    assert compare_sides(failed, "amp") == {"problem": "RuntimeError: no", "others": 0.0}
    assert compare_sides(truth, "compile")["problem"] == "not measured"


def test_what_disturbs_a_turn_now_and_then_is_in_no_ratio() -> None:
    """Equal sides are equal, though a round has more turns of the base than of another side."""
    rounds = [(10, 10, 20, 10), (10, 20, 10, 10), (20, 10, 10, 20)]
    blocks = [
        {"side": side, "block": block, "process": 0, "step_ns": [ns], "faults": 2, "cpu_ns": ns}
        for block, (*base, amp) in enumerate(rounds)
        for side, ns in [*(("base", ns) for ns in base), ("amp", amp)]
    ]
    found = compare_sides({"blocks": blocks, "errors": {}, "others": 0.0}, "amp")
    assert found["after_ns"] == pytest.approx(found["base_ns"])


def test_held_out_jobs_are_not_predicted_without_a_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their truth is in the table; nothing is asked about them."""
    visit = Visit(JOB, tmp_path / "small")
    visit.folder.mkdir()
    blocks = _blocks({"base": [10, 20], "batch_size": [20, 40]})
    result = {"blocks": blocks, "errors": {}, "others": 0.1}
    visit.result("plain.0").write_text(json.dumps(result))
    asked: list[str] = []

    class Recorded:
        def __init__(self, visit: Visit) -> None:
            asked.append(visit.job.name)

        def predict(self, _side: object) -> dict[str, Any]:
            return {"rules_ns": 1.0}

    monkeypatch.setattr(predictions, "_Recorded", Recorded)
    table = make_table([JOB], tmp_path, look=False, say=asked.append)
    assert table["base_ns"].tolist() == [15.0]
    assert "rules_ns" not in table
    assert asked == ["small: held out"]
    table = make_table([JOB], tmp_path, look=True, say=lambda _line: None)
    assert table["rules_ns"].tolist() == [1.0]


def test_jobs_without_a_recording_say_so(tmp_path: Path) -> None:
    """Every what-if of such a job is refused, in words."""
    visit = Visit(DrawnJob(**{**JOB.__dict__, "held_out": False}), tmp_path)
    blocks = _blocks({"base": [10, 20], "batch_size": [20, 40]})
    result = {"blocks": blocks, "errors": {}, "others": 0.0}
    visit.result("plain.0").write_text(json.dumps(result))
    (row,) = predictions.rows_of(visit, is_shown=True)
    assert row["recorder_problem"]
    assert row["rules_refused"]
