"""Means, noise, and what counts as a disturbance."""

from __future__ import annotations

from foretrace.tracer.step_stats import Quality, neighbours_ratio, trimmed_mean


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
    }
    assert quality.warnings(on_cpu=True) == {}


def test_faults_and_lost_cpu_are_named() -> None:
    """Waiting is a disturbance on a CPU only; page faults are one everywhere."""
    quality = Quality(steps=10, wall_ns=1000, cpu_ns=800, faults=5000)
    assert quality.warnings(on_cpu=True) == {"page_faults": 500, "cpu_taken_away": 20}
    assert quality.warnings(on_cpu=False) == {"page_faults": 500}


def test_blocks_add_up() -> None:
    """Each block adds its steps and its times."""
    quality = Quality()
    for steps in (2, 3):
        over = quality.block()
        sum(range(10_000))
        over(steps)
    assert quality.steps == 5
    assert quality.wall_ns > 0
