"""What pairs prove: errors by kind, and where they were tested."""

from __future__ import annotations

import pytest

from benchmarks.accuracy.error_table import error_table
from tests.support.measured.pairs import pair

PAIRS = (pair("a", 0.02), pair("b", 0.04 / 0.96), pair("c", -1 / 17))
"""Measured 2 % and 4 % below and 6.25 % above what was predicted."""


def test_the_table_keeps_what_nine_of_ten_stay_below() -> None:
    """Of three pairs that is the worst one."""
    table = error_table(PAIRS)

    assert table["gpu"] == {"rule": {"amp": {"pairs": 3, "median": 0.04, "p90": 0.0625}}}
    assert table["cpu"] == {}


def test_what_untested_rules_may_miss_is_what_tested_ones_missed() -> None:
    """100 became 50: predicting 52 misses ln(1.04) of ln(2)."""
    assert error_table([pair("a", 0.04)])["unvalidated"]["missed"] == pytest.approx(
        0.0566, abs=1e-4
    )


def test_calibrated_predictions_are_counted_apart() -> None:
    """A pair with a calibration tells about both sources."""
    rows = [pair(name, 0.2, calibrated_ns=50.5, hardware="cpu") for name in "ab"]
    table = error_table(rows)["cpu"]

    assert table["measured"]["amp"] == {"pairs": 2, "median": 0.0099, "p90": 0.0099}
    assert table["rule"]["amp"]["median"] == 0.1667


def test_one_pair_validates_nothing() -> None:
    """A single pair may be luck."""
    assert error_table(PAIRS[:1])["gpu"] == {}


@pytest.mark.parametrize(
    "settings",
    [
        {"noise": 0.03},
        {"held_out": True},
        {"transforms": ("amp", "device")},
    ],
)
def test_some_pairs_count_nowhere(settings: dict[str, object]) -> None:
    """Noisy ones, held-out models and several changes at once."""
    assert error_table((*PAIRS, pair("odd", 0.5, **settings)))["gpu"] == error_table(PAIRS)["gpu"]


def test_a_part_of_the_device_time_vouches_for_the_step() -> None:
    """The optimizer's time was predicted within 20 %: a step's is no further off."""
    table = error_table((*PAIRS, pair("phase", 0.25, measure="optimizer")))

    assert table["gpu"]["rule"]["amp"]["p90"] == 0.2


def test_a_public_recording_that_misses_its_step_counts_nowhere() -> None:
    """One rule for all: its own replay is the only noise that a public pair shows."""
    assert (
        error_table([pair("odd", 0.5, replay_error=0.06), *PAIRS])["gpu"]
        == error_table(PAIRS)["gpu"]
    )


def test_what_cannot_be_foreseen_has_an_error_and_is_no_evidence() -> None:
    """Of generated code the interval is as wide as it was off; it validates nothing."""
    rows = [pair(name, 0.3, transforms=("compile",)) for name in "ab"]
    table = error_table([*rows, *PAIRS])

    assert table["gpu"]["rule"]["compile"]["p90"] == pytest.approx(0.3 / 1.3, abs=1e-4)
    assert "compile" not in table["evidence"]


def test_a_part_misses_its_share_of_the_step() -> None:
    """10 of an optimizer's 60, in a step of 500, are 2 % of the step."""
    rows = [pair(name, 0.2, measure="optimizer", step_ns=500.0) for name in "ab"]

    assert error_table(rows)["gpu"]["rule"]["amp"]["p90"] == pytest.approx(0.02)
