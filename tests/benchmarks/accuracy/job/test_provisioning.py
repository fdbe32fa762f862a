"""The study of plans and of speeds: what rules rent, and what simulated fits are worth."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks.accuracy.job.provisioning import Real, picks, plan_section
from benchmarks.accuracy.job.scaling import GOAL, speed_section, tries
from foretrace.job.answer import Answer
from foretrace.job.scaling.surface import Form
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path


def real(price: float, real_s: float) -> Real:
    """Return a run at *price* that took *real_s* and was foretold right."""
    return Real("model", price, real_s, Answer(real_s, real_s, real_s, "s"), real_s)


RUNS = [real(1.0, 10.0), real(3.0, 5.0), real(9.0, 2.5)]
"""Each is the cheapest in time for some deadlines."""


def test_who_knows_the_times_rents_the_cheapest() -> None:
    """Never late, and nothing more than it costs."""
    found = picks(RUNS, [10.0, 5.0, 2.5])

    assert (found.none, found.late, found.paid) == (0, 0, 1.0)


def test_who_hopes_is_late() -> None:
    """Times that are a fifth too short: late wherever the deadline lies in between."""
    found = picks(RUNS, [8.0, 4.0, 2.0])
    between = 2 * np.log(5 / 4) / np.log(10 / 2.5)

    assert found.late / found.deadlines == pytest.approx(between, abs=0.01)


def test_who_fears_pays() -> None:
    """Times that are a fifth too long: nothing is in time early on, and dearer runs are rented."""
    found = picks(RUNS, [12.0, 6.0, 3.0])

    assert found.none / found.deadlines == pytest.approx(np.log(1.2) / np.log(4), abs=0.01)
    assert found.late == 0
    assert found.paid > 1


def test_who_rents_nothing_pays_nothing() -> None:
    """There is no mean of no costs."""
    found = picks(RUNS, [99.0, 99.0, 99.0])

    assert found.none == found.deadlines
    assert np.isnan(found.paid)


@pytest.mark.slow
def test_the_replay_plans_better_than_the_closed_form() -> None:
    """On real runs: never late with its whole interval, where the closed form often is."""
    lines = plan_section(ROOT / "traces" / "job")
    late = {
        tuple(cell.strip() for cell in line.split("|")[1:3]): line.split("|")[5].strip()
        for line in lines
        if line.startswith(("| tuned on | ", "| held out | ")) and line.count("|") == 7
    }

    assert late["tuned on", "replay, whole interval in time"] == "0.0%"
    assert late["held out", "replay, whole interval in time"] == "0.0%"
    assert float(late["held out", "closed form"].rstrip("%")) > 20


def test_eight_chosen_points_are_enough() -> None:
    """Simulated surfaces are known within 3 % on average."""
    found = list(islice(tries(Form(), chosen=True), 10))

    assert all(each.relative < GOAL for each in found)


def test_the_section_has_a_row_per_form_and_kind_of_points(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Two of each."""
    monkeypatch.setattr("benchmarks.accuracy.job.scaling.SURFACES", 2)

    assert [line.split("|")[2].strip() for line in speed_section(tmp_path)[-4:]] == [
        "random",
        "chosen",
        "random",
        "chosen",
    ]
