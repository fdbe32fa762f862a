"""Pairs and rows of the truth set are observations of one kind."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pandas as pd
import pytest

from benchmarks.accuracy.intervals.observations import PLAIN, observe_pairs, read_truth
from foretrace.analysis.error.difficulty import Difficulty
from tests.support.measured.pairs import pair

if TYPE_CHECKING:
    from pathlib import Path

ROW = {
    "architecture": "mixer",
    "held_out": False,
    "change": "amp+batch_size",
    "problem": "",
    "noise": 0.01,
    "after_ns": 55.0,
    "recorded_steps_ns": [100, 100],
    "hardware": "AMD CPU without 16-bit products",
    "rules_ns": 50.0,
    "rules_change_share": -0.5,
    "rules_replay_error": 0.0,
    "rules_share_roofline": 0.5,
    "rules_share_prior": 0.25,
    "rules_share_python": 0.1,
    "rules_is_timed": False,
    "calibrated_ns": 52.0,
    "calibrated_change_share": -0.48,
    "calibrated_replay_error": 0.0,
    "calibrated_share_measured": 0.5,
    "calibrated_share_python": 0.1,
    "calibrated_is_timed": True,
}


def test_a_pair_is_observed_by_rules_and_calibrated() -> None:
    """What its interval holds anyway is on the side on which the truth lies."""
    rule, timed = observe_pairs([pair("a", -0.2, calibrated_ns=49.0, step_interval=(0.9, 1.05))])

    assert (rule.way, timed.way) == ("rule", "measured")
    assert rule.off == pytest.approx(-0.2)
    assert rule.error == pytest.approx(math.log(50 / 40))
    assert rule.known == pytest.approx(math.log(1.05))
    assert rule.excess == pytest.approx(math.sqrt(rule.error**2 - rule.known**2))


def test_a_part_of_a_step_is_off_by_less_of_the_step() -> None:
    """60 predicted of an optimizer's 50, in a step of 500."""
    (found,) = observe_pairs([pair("a", 0.2, measure="optimizer", step_ns=500.0)])

    assert found.off == pytest.approx(0.2)
    assert found.error == pytest.approx(math.log(0.98))


def test_what_judges_nothing_is_not_observed() -> None:
    """Noisy pairs and generated code."""
    rows = [pair("noisy", 0.1, noise=0.03), pair("odd", 0.1, transforms=("compile",))]

    assert list(observe_pairs(rows)) == []


def test_rows_of_the_truth_set_are_observed(tmp_path: Path) -> None:
    """Noisy, failed and unpredicted rows are left out, as its own score leaves them out."""
    table = tmp_path / "truth.parquet"
    rows = [
        ROW,
        {**ROW, "noise": 0.5},
        {**ROW, "problem": "no memory"},
        {**ROW, "rules_ns": None, "calibrated_is_timed": False},
    ]
    pd.DataFrame(rows).to_parquet(table)
    rule, timed = read_truth(table)

    assert rule.difficulty == pytest.approx(Difficulty(0.75, 0.0, math.log(2), 0.1))
    assert timed.difficulty.timed == 0.5
    assert (rule.what_ifs, rule.source, rule.tuned) == (("amp", "batch_size"), PLAIN, True)
    assert rule.error == pytest.approx(math.log(1.1))


def test_a_truth_set_that_was_not_measured_yet_is_empty(tmp_path: Path) -> None:
    """Nothing is made up."""
    assert read_truth(tmp_path / "truth.parquet") == []
