"""Simulated schedules: what the forecast makes of a future that nobody told it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.accuracy.job.simulated_schedules import (
    by_chance,
    families,
    schedules_section,
    try_rules,
)


def test_the_end_of_a_job_is_certain() -> None:
    """In its last epoch only that is left."""
    found = try_rules((16, 64, 64, 64), 0.75)

    assert found.ours == pytest.approx(0, abs=1e-9)
    assert found.held


def test_a_split_by_chance_has_every_epoch() -> None:
    """And sizes that only rise."""
    schedule = by_chance((16, 64), 20, np.random.default_rng(0))

    assert len(schedule) == 20
    assert list(schedule) == sorted(schedule)


def test_the_forecast_is_nearer_than_the_published_rule_late() -> None:
    """From half of the job on, over all schedules by chance."""
    found = [try_rules(schedule, 0.5) for schedule in families()["by chance"]]

    assert np.mean(np.abs([each[0] for each in found])) < np.mean(np.abs([e[1] for e in found]))


def test_the_section_has_a_row_for_each_kind_and_progress() -> None:
    """Three kinds at four times."""
    lines = schedules_section(Path())

    assert sum(line.startswith(("| Accordion", "| GNS", "| by chance")) for line in lines) == 12
