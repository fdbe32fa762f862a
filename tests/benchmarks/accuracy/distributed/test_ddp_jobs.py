"""The study of recorded DDP jobs: what the accuracy page says, from the traces before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.accuracy.distributed.ddp_jobs import bucket_row, more_rows

if TYPE_CHECKING:
    from pathlib import Path

BEFORE_MB = (4.4, 83.9, 134.2, 67.1, 67.1, 67.1, 33.6, 10.6)
AFTER_MB = (4.4, 218.1, 134.2, 109.1, 2.2)


@pytest.mark.parametrize("year", ["2021", "2022"])
def test_the_buckets_are_those_of_the_traces(public_traces: Path, year: str) -> None:
    """Eight before, five after, to the byte of the tensors that DDP copies."""
    row = bucket_row(public_traces, year)

    assert row.before_mb == BEFORE_MB
    assert row.after_mb == AFTER_MB
    assert (row.recorded_before, row.recorded_after) == (8, 5)


def test_the_difference_of_2022_is_predicted(public_traces: Path) -> None:
    """0.84 ms less within a quarter: most of it are the copies that vanish."""
    row = bucket_row(public_traces, "2022")

    assert row.measured_ms == pytest.approx(-0.84, abs=0.05)
    assert abs(row.error) < 0.25


def test_eight_gpus_of_2021_follow_from_the_nominal_network(public_traces: Path) -> None:
    """Two cards of 100 Gbit/s per node; "no change" is 26 to 28 % off."""
    for row in more_rows(public_traces, "2021"):
        assert abs(row.error(row.nominal_ms)) < 0.05
        assert row.error(row.null_ms) < -0.25


def test_eight_gpus_of_2022_follow_from_one_calibration_point(public_traces: Path) -> None:
    """The nominal network is a lower bound there; the job before calibrates the one after."""
    before, after = more_rows(public_traces, "2022")

    assert -0.2 < before.error(before.nominal_ms) < 0
    assert after.calibrated_ms is not None
    assert abs(after.error(after.calibrated_ms)) < 0.06
    assert after.gb_per_s is not None
    assert 50 < after.gb_per_s < 100
