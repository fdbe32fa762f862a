"""Changing batch sizes: published rules to their digits, and what our forecast adds."""

from __future__ import annotations

import numpy as np
import pytest

from foretrace.errors import RefusedError
from foretrace.job.batch_schedule.baselines import dirichlet_remaining, naive_remaining
from foretrace.job.batch_schedule.epoch_costs import EpochCost
from foretrace.job.batch_schedule.forecast import TrainingSoFar, forecast_regimes

SCHEDULE = (32,) * 4 + (64,) * 6
SECONDS = {32: 10.0, 64: 6.0}
KNOWN = {size: EpochCost(seconds, 0.0, 0.0) for size, seconds in SECONDS.items()}


def training(done: int, *, running: bool = True, **more: object) -> TrainingSoFar:
    """Return the job of ten epochs after *done* of them."""
    sizes = SCHEDULE[: done + running]
    seconds = tuple(SECONDS[size] for size in SCHEDULE[:done])
    return TrainingSoFar(sizes, seconds, 10, **{"costs": KNOWN, **more})  # type: ignore[arg-type]


def test_the_dirichlet_rule_is_shockwaves_to_the_digit() -> None:
    """Its own code, run on this schedule, printed these numbers."""
    printed = [71.8182, 63.3333, 54.6154, 45.7143, 38.0, 30.5, 23.1765, 16.0, 8.9474, 4.0]

    found = [dirichlet_remaining(SCHEDULE[: t + 1], 10, SECONDS) for t in range(10)]

    assert [round(value, 4) for value in found] == printed


def test_the_naive_rule_repeats_the_last_epoch() -> None:
    """Whatever came before it."""
    assert naive_remaining(6.0, 3) == 18.0


def test_a_schedule_leaves_only_costs_and_pace_open() -> None:
    """Every epoch to come is counted at its own cost; both rules stand beside."""
    found = forecast_regimes(training(4, schedule=SCHEDULE))

    assert found.total.value == pytest.approx(76)
    assert found.remaining.low < found.remaining.value < found.remaining.high
    assert found.left == {32: 0.0, 64: 6.0}
    assert found.dirichlet_total == pytest.approx(40 + 38)
    assert found.naive_total == pytest.approx(40 + 60)


def test_seen_epochs_go_before_what_was_known() -> None:
    """A machine 1.2 times as slow as the table with 32 samples is so with 64, too."""
    slow = TrainingSoFar((32,) * 5, (12.0,) * 5, 10, KNOWN, SCHEDULE[:4] + (32,) + (64,) * 5)

    assert forecast_regimes(slow).seconds[64].seconds == pytest.approx(7.2)
    assert forecast_regimes(slow).seconds[32].seen == 4


def test_the_first_epoch_starts_the_job_up() -> None:
    """It says nothing about later ones, where there are enough of these."""
    found = forecast_regimes(TrainingSoFar((32,) * 3, (30.0, 10.0, 10.0), 10, {}, (32,) * 10))

    assert found.total.value == pytest.approx(50 + 70)
    assert forecast_regimes(
        TrainingSoFar((32,), (30.0,), 2, {}, (32,) * 2)
    ).total.value == pytest.approx(60)


def test_rising_sizes_split_what_is_left() -> None:
    """Half of the job was planned for either; the last regime is certain once it is reached."""
    early = forecast_regimes(training(2, rising=True))
    late = forecast_regimes(training(6, rising=True))

    assert 3 < early.left[32] < 4.5
    assert late.left == {32: 0.0, 64: 4.0}
    assert late.total.value == pytest.approx(52 + 24)


def test_an_open_future_is_blended_into_the_observed_rate() -> None:
    """Early both sizes are expected; an old regime near the end is expected to last."""
    sizes = (32,) * 3 + (64,) * 61
    seconds = tuple(SECONDS[size] for size in sizes)
    early = forecast_regimes(TrainingSoFar((32,), (), 67, KNOWN))
    late = forecast_regimes(TrainingSoFar(sizes, seconds, 67, KNOWN))

    assert 20 < early.left[64] < 47
    assert late.left[64] > 2.8
    assert late.total.high - late.total.low < 0.1 * late.total.value
    assert early.remaining.high > 1.2 * early.remaining.low


def test_the_interval_of_rising_splits_holds_what_it_promises() -> None:
    """Of uniform random splits, nine in ten lie inside."""
    random = np.random.default_rng(0)
    inside = 0
    for _ in range(100):
        cut = random.uniform(20, 100)
        truth = sum(SECONDS[32 if epoch < cut else 64] for epoch in range(100))
        found = forecast_regimes(TrainingSoFar((32,) * 21, (10.0,) * 20, 100, KNOWN, rising=True))
        inside += found.total.low <= truth <= found.total.high

    assert 80 <= inside <= 98


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"sizes": ()}, "at least one epoch"),
        ({"seconds": (10.0,)}, "at least one epoch"),
        ({"epochs": 2}, "all 2 epochs are over"),
        ({"rising": True, "sizes": (64, 32, 32)}, "fell"),
        ({"schedule": (32, 64) + (64,) * 8}, "epoch 2 ran with 32 samples, the schedule says 64"),
        ({"schedule": (32,) * 3}, "the schedule has 3 epochs, not 10"),
    ],
)
def test_contradictions_are_refused(change: dict[str, object], text: str) -> None:
    """Before anything is computed."""
    given: dict[str, object] = {"sizes": (32,) * 3, "seconds": (10.0,) * 2, "epochs": 10}

    with pytest.raises(RefusedError, match=text):
        TrainingSoFar(**{**given, **change})  # type: ignore[arg-type]


def test_an_unknown_cost_is_refused() -> None:
    """A size that was never seen, and that no table and no recording knows."""
    with pytest.raises(RefusedError, match="an epoch of 64 samples per step takes is not known"):
        forecast_regimes(TrainingSoFar((32,), (10.0,), 10, {}, (32,) * 4 + (64,) * 6))


def test_costs_that_do_not_fit_are_refused() -> None:
    """One size is slower than its cost, the other faster."""
    seconds = (15.0,) * 4 + (5.0,) * 2
    known = {**KNOWN, 128: EpochCost(4.0)}

    with pytest.raises(RefusedError, match=r"32 samples per step take 1.50 times .* 64 0.83"):
        forecast_regimes(TrainingSoFar(SCHEDULE[:6], seconds, 10, known))


def test_a_drift_is_refused_and_noise_is_not() -> None:
    """Neither the mean nor the last epoch would say how long others take."""
    rising = tuple(10.0 + epoch for epoch in range(7))
    noisy = (10.0, 12.0, 9.0, 11.0, 8.0, 13.0, 12.0)

    with pytest.raises(RefusedError, match=r"drift by \+37% from the first to the last"):
        forecast_regimes(TrainingSoFar((32,) * 7, rising, 10, {}, (32,) * 10))
    assert forecast_regimes(TrainingSoFar((32,) * 7, noisy, 10, {}, (32,) * 10)).total.value > 100


def test_many_epochs_are_compared_in_parts() -> None:
    """A drift over 50,000 of them is found, and what does not drift is answered."""
    rising = tuple(np.linspace(10.0, 14.0, 50_000).tolist())

    with pytest.raises(RefusedError, match=r"drift by \+33%"):
        forecast_regimes(TrainingSoFar((32,) * 50_000, rising, 60_000, {}, (32,) * 60_000))
    even = (10.0, 11.0) * 25_000
    found = forecast_regimes(TrainingSoFar((32,) * 50_000, even, 60_000, {}, (32,) * 60_000))
    assert found.total.value == pytest.approx(630_000, rel=0.01)


def test_no_time_is_below_zero() -> None:
    """However much one epoch was out of line."""
    odd = (*[10.0] * 8, 1000.0)

    assert forecast_regimes(TrainingSoFar((32,) * 9, odd, 12, {}, (32,) * 12)).remaining.low >= 0
