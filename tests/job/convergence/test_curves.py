"""Forms of a loss, rows of its log, and its schedule: what a forecast of convergence is made of."""

from __future__ import annotations

import math

import numpy as np
import pytest

from foretrace.errors import RefusedError
from foretrace.job.convergence.backtest import fit_last, select_contenders, trust
from foretrace.job.convergence.bootstrap import _misfit
from foretrace.job.convergence.curves import FORMS, fit_form
from foretrace.job.convergence.learning_rate import schedule_of
from foretrace.job.convergence.statistics import bins, level, moving_mean, noise, trailing_mean

STEPS = np.arange(1.0, 2001)
HALF = 1000


def noisy(losses: np.ndarray, spread: float = 0.02, seed: int = 1) -> np.ndarray:
    """Return *losses* with noise."""
    return losses + spread * np.random.default_rng(seed).standard_normal(len(losses))


def test_the_next_change_of_a_schedule() -> None:
    """Read from rows ahead, given by the user, or to be expected from the last ones."""
    steps = np.arange(1.0, 41)
    constant, falls = np.full(40, 0.1), np.where(steps <= 30, 0.1, 0.01)
    twice = np.select([steps <= 14, steps <= 28], [0.1, 0.01], 0.001)

    assert schedule_of(steps, None) == (0, math.inf, "")
    assert schedule_of(steps, None, next_change=50) == (0, 50, "as given")
    assert schedule_of(steps, constant) == (0, math.inf, "")
    assert schedule_of(steps, constant, ahead=[(41, 0.1), (50, 0.05)])[1:] == (50, "says the log")
    assert schedule_of(steps, constant, ahead=[(41, 0.1)]) == (0, math.inf, "")
    assert schedule_of(steps, falls)[:2] == (30, 60)
    assert schedule_of(steps, falls, next_change=math.inf)[:2] == (30, math.inf)
    assert schedule_of(steps, twice)[:2] == (28, 42)
    assert schedule_of(steps, np.where(steps <= 10, 0.1, 0.01))[:2] == (10, math.inf)


def test_a_warm_up_does_not_count_and_does_not_repeat() -> None:
    """A rate that only rises is not expected to change again."""
    steps = np.arange(1.0, 101)

    assert schedule_of(steps, np.minimum(1, steps / 10)) == (9, math.inf, "")


def test_a_rate_that_moves_all_the_time_is_refused() -> None:
    """As along a cosine."""
    with pytest.raises(RefusedError, match="the learning rate is still changing at the end"):
        schedule_of(STEPS, 1 + np.cos(STEPS / 2000))


def test_fits_recover_what_made_the_losses() -> None:
    """Amplitude and asymptote on the grid's own shapes; two rows at once."""
    times = np.arange(1.0, 101)
    rows = np.stack([2 / (times / 100 + 1.0) + 0.5, 3 / (times / 100 + 1.0)])
    shape = FORMS["optimus"][1][np.argmin(np.abs(FORMS["optimus"][1] - 1.0))]
    rows = np.array([[2.0], [3.0]]) / (times / 100 + shape) + np.array([[0.5], [0.0]])
    found = fit_form("optimus", times, rows, np.ones(100))

    assert found.amplitudes == pytest.approx([2, 3])
    assert found.asymptotes == pytest.approx([0.5, 0], abs=1e-9)
    assert found.at(times) == pytest.approx(rows)


def test_losses_above_zero_get_no_asymptote_below() -> None:
    """A straight line would level off below zero; losses with a sign may."""
    times = np.arange(1.0, 101)
    falling = 1.01 - times / 100

    assert fit_form("optimus", times, falling, np.ones(100)).asymptotes[0] == 0
    assert fit_form("optimus", times, falling - 0.5, np.ones(100)).asymptotes[0] < -0.5


def test_a_rising_loss_fits_a_constant() -> None:
    """No amplitude is negative."""
    times = np.arange(1.0, 101)

    assert fit_form("power", times, times, np.ones(100)).amplitudes[0] == 0


def test_noise_is_told_from_the_trend() -> None:
    """To a tenth, on a steep line."""
    assert noise(noisy(10 - STEPS / 200, spread=0.05)).mean() == pytest.approx(0.05, rel=0.1)


def test_bins_are_short_at_first_and_keep_all_rows() -> None:
    """Of 2,000 rows about eighty bins; of few rows each its own."""
    starts = bins(STEPS)

    assert starts[0] == 0
    assert len(starts) < 85
    assert np.diff(starts)[-58:].max() <= 26
    assert bins(STEPS[:12]).tolist() == list(range(12))


def test_the_level_of_a_line_is_its_end() -> None:
    """Whatever comes after."""
    losses = np.where(STEPS <= 500, 10 - STEPS / 100, 0)

    assert level(STEPS, losses, 500, 0.15)[0] == pytest.approx(5)
    assert level(STEPS[:4], losses[:4], 4, 0.15)[0] == pytest.approx(losses[3])


def test_means_at_the_ends_are_of_what_there_is() -> None:
    """No padding."""
    assert moving_mean(np.array([1.0, 2.0, 3.0, 10.0]), 3).tolist() == [1.5, 2, 5, 6.5]
    assert trailing_mean(np.array([1.0, 2.0, 3.0, 10.0]), 3).tolist() == [2, 5]


def test_the_tail_tells_forms_apart() -> None:
    """A slow power law is no exponential: that would have levelled off by now."""
    trusted = trust(STEPS[:HALF], noisy(6 * STEPS**-0.3, 0.002)[:HALF])

    assert list(trusted)[-1] == "exponential"
    assert "exponential" not in select_contenders(trusted)
    assert trusted["power"].spread < trusted["exponential"].spread


def test_too_few_rows_are_not_fitted() -> None:
    """Seven are not, eight are."""
    assert fit_last("power", STEPS[:7], 1 / STEPS[:7]) is None
    assert fit_last("power", STEPS[:8], 1 / STEPS[:8]) is not None


def test_a_form_that_misses_the_end_of_a_log_is_hardly_trusted() -> None:
    """A hyperbola stays far above an exponential; it follows another hyperbola to its end."""
    losses = {"missed": np.exp(-STEPS[:200] / 10), "followed": 1 / (STEPS[:200] + 100)}
    misfits = {}
    for name, known in losses.items():
        fitted = fit_last("optimus", STEPS[:200], known)
        assert fitted is not None
        left = fitted.losses - fitted.curves.at(fitted.times)[0]
        misfits[name] = _misfit(fitted, *level(fitted.times, left, fitted.times[-1], 0.25))

    assert misfits["missed"] > 0.5
    assert misfits["followed"] < 0.02
