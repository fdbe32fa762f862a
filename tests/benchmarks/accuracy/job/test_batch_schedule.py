"""The section about changing batch sizes: runs in, errors at shares of their progress out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.accuracy.job.batch_schedule import (
    WAYS,
    Run,
    ask,
    costs_of,
    read_runs,
    regimes_section,
)
from foretrace.job.batch_schedule.epoch_costs import EpochCost
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

RUN = Run("cnn, two, 1", "cnn", 64, (16,) * 4 + (64,) * 4, (2.0,) * 4 + (1.0,) * 4)
COSTS = {16: EpochCost(2.0), 64: EpochCost(1.0), 256: EpochCost(0.5)}
RECORDED = ROOT / "traces" / "job"


def test_a_run_is_forecast_after_a_share_of_its_epochs() -> None:
    """Exactly, where costs and schedule are known; a size that it never uses does not count."""
    known = ask(RUN, 0.25, COSTS, planned=True)
    sizes = ask(RUN, 0.25, COSTS, planned=False)

    assert known.error == pytest.approx(0, abs=1e-9)
    assert known.is_held
    assert abs(sizes.error) > 0.001


def test_a_refusal_is_counted_as_one() -> None:
    """Costs that fit one size and not the other, with a third to come."""
    sizes = (*RUN.sizes, 256, 256)
    run = Run("cnn, three, 1", "cnn", 64, sizes, (*RUN.seconds, 0.5, 0.5))

    assert ask(run, 0.7, {**COSTS, 64: EpochCost(9.0)}, planned=True).forecast is None


@pytest.mark.parametrize("way", WAYS[:2])
def test_real_trainings_with_their_schedule_are_foretold(way: str) -> None:
    """From a quarter on within 6 %, by two recordings or by a calibrated one."""
    runs = read_runs(RECORDED / "batch-schedules" / "epochs.csv")
    for model in ("cnn", "mlp"):
        costs = costs_of(RECORDED / "batch-schedules", model, runs)[way]
        for run in (run for run in runs if run.model == model):
            errors = [ask(run, at, costs, planned=True).error for at in (0.25, 0.5, 0.75)]

            assert max(map(abs, errors)) <= 0.06, run.name


def test_the_section_shows_every_run() -> None:
    """A row for each way of knowing the costs, for both rules, and for each run."""
    lines = regimes_section(RECORDED)

    assert lines[0] == "## Changing batch sizes"
    assert sum(line.startswith("| schedule") for line in lines) == 3
    assert sum(line.startswith(("| cnn", "| mlp")) for line in lines) == 8
    assert any(line.startswith("| last epoch repeated | 88.9%") for line in lines)


def test_runs_are_read_in_order(tmp_path: Path) -> None:
    """One per model, schedule and repeat."""
    path = tmp_path / "epochs.csv"
    path.write_text(
        "model,schedule,repeat,samples,batch_size,seconds\n"
        "cnn,two,0,64,16,2.0\ncnn,two,0,64,64,1.0\ncnn,two,1,64,16,2.1\n",
        "utf-8",
    )

    first, second = read_runs(path)

    assert first == Run("cnn, two, 1", "cnn", 64, (16, 64), (2.0, 1.0))
    assert second.name == "cnn, two, 2"
