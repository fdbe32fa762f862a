"""Means, noise, and what counts as a disturbance."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from foretrace.tracer import step_stats
from foretrace.tracer.step_stats import Quality, neighbours_ratio, trimmed_mean

if TYPE_CHECKING:
    from pathlib import Path


def test_one_outlier_in_five_does_not_move_the_mean() -> None:
    """The trimmed mean drops the lowest and the highest fifth."""
    assert trimmed_mean([10, 10, 10, 10, 1000]) == 10
    assert trimmed_mean([7]) == 7


def test_noise_is_the_drift_of_the_ratio() -> None:
    """A machine that slows both sides alike makes no noise; one that slows one side does."""
    assert neighbours_ratio([100, 100, 120, 120], [50, 50, 60, 60]) == (0.5, 0)
    assert neighbours_ratio([50, 50, 50, 50], [100, 100, 120, 120])[1] == 0.2
    assert neighbours_ratio([100], [50]) == (0.5, 0)


def test_a_quiet_block_gives_no_warning() -> None:
    """Counts are per step, CPU time per wall time."""
    quality = Quality(steps=10, wall_ns=1000, cpu_ns=1000, faults=50, switches=5)
    assert quality.summary() == {
        "steps": 10,
        "minor_faults_per_step": 5.0,
        "involuntary_switches_per_step": 0.5,
        "cpu_per_wall": 1.0,
        "delayed_per_wall": 0.0,
        "others_per_wall": 0.0,
    }
    assert quality.warnings(computes_only=True) == {}


def test_faults_and_lost_cpu_are_named() -> None:
    """Waiting is a disturbance on a CPU only; page faults are one everywhere."""
    quality = Quality(steps=10, wall_ns=1000, cpu_ns=800, faults=5000)
    assert quality.warnings(computes_only=True) == {"page_faults": 500, "cpu_taken_away": 20}
    assert quality.warnings(computes_only=False) == {"page_faults": 500}


def test_waiting_for_a_core_is_a_disturbance_of_any_job_that_fits() -> None:
    """A job with a loader waits for batches; that it waited for a core, others are the cause of."""
    quality = Quality(steps=10, wall_ns=1000, cpu_ns=300, delayed_ns=250)
    assert quality.warnings(computes_only=False) == {"cpu_taken_away": 25}
    assert quality.warnings(computes_only=False, fits=False) == {}


def test_a_job_with_more_processes_than_cores_is_disturbed_by_those_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A loader's workers wait for each other; what others had of two cores is no work of theirs."""
    monkeypatch.setattr(step_stats, "_count_cores", lambda: 2)
    quality = Quality(steps=10, wall_ns=1000, cpu_ns=300, others_ns=800)
    of_a_rank = quality.warnings(computes_only=False, fits=False, is_whole=False)

    assert quality.warnings(computes_only=False, fits=False) == {"cpu_taken_away": 40}
    assert of_a_rank == {}


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no list of own cores here")
def test_what_children_compute_is_no_time_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 900 ticks that the own cores worked, those of this process and of a child are its own."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: {0, 1})
    monkeypatch.setattr(os, "sysconf", lambda _name: 100)
    monkeypatch.setattr(os, "times", lambda: (1.0, 0.5, 0.25, 0.25, 9.0))
    monkeypatch.setattr(step_stats, "_descendants", lambda _process: [7])
    monkeypatch.setattr(step_stats, "_seconds_of", lambda _process: 3.0)
    told = tmp_path / "stat"
    told.write_text("cpu 1 1\ncpu0 300 0 100 999 9 0 0 0 5 5\ncpu1 400 0 100 999 9 0 0 0\ncpu2 9\n")
    monkeypatch.setattr(step_stats, "CORES", told)

    assert step_stats.others_ns() == 4_000_000_000


@pytest.mark.parametrize(("told", "delayed_ns"), [(None, 0), ("odd", 0), ("9 350 2", 350)])
def test_how_long_a_thread_waited_is_known_where_the_system_says_it(
    told: str | None, delayed_ns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second number; nothing where there is no such file, or another text in it."""
    file = tmp_path / "schedstat"
    if told is not None:
        file.write_text(told, "ascii")
    monkeypatch.setattr(step_stats, "SCHEDULED", file)

    assert step_stats._delayed_ns() == delayed_ns


def test_blocks_add_up() -> None:
    """Each block adds its steps and its times."""
    quality = Quality()
    for steps in (2, 3):
        over = quality.block()
        sum(range(10_000))
        over(steps)
    assert quality.steps == 5
    assert quality.wall_ns > 0
