"""When a loss reaches a target: on made-up losses with a known answer, and on real trainings."""

from __future__ import annotations

import contextlib
import math

import numpy as np
import pytest

from benchmarks.accuracy.job.convergence import SHOWN, questions, read_runs
from foretrace.analysis.evidence.evidence import UNVALIDATED, VALIDATED
from foretrace.errors import RefusedError
from foretrace.job.convergence.curves import FORMS
from foretrace.job.convergence.forecast import Convergence, forecast_steps_to_loss
from foretrace.job.convergence.loss_log import LossLog
from foretrace.job.convergence.model_comparison import last_slope, optimus_alone
from tests.support.paths import ROOT

LOSSES = ROOT / "traces" / "job" / "losses.parquet"
STEPS = np.arange(1.0, 2001)
HALF = 1000


def noisy(losses: np.ndarray, spread: float = 0.02, seed: int = 1) -> np.ndarray:
    """Return *losses* with noise."""
    return losses + spread * np.random.default_rng(seed).standard_normal(len(losses))


def log(losses: np.ndarray, rates: np.ndarray | None = None) -> LossLog:
    """Return the log of a training that began at step 1."""
    return LossLog(STEPS[: len(losses)], losses, rates)


def asked(losses: np.ndarray, at: int) -> tuple[Convergence, int]:
    """Ask the first half of *losses* for what the noiseless loss is at a step; tell that step."""
    return forecast_steps_to_loss(log(noisy(losses)[:HALF]), float(losses[at - 1])), at


@pytest.mark.parametrize("at", [1100, 1300])
@pytest.mark.parametrize(
    "losses",
    [1 / (0.01 * STEPS + 0.5) + 0.1, 6 * (STEPS + 20) ** -0.3, 2 * np.exp(-STEPS / 900) + 0.2],
    ids=FORMS,
)
def test_each_form_is_answered_within_the_interval(losses: np.ndarray, at: int) -> None:
    """A hyperbola, a power law and an exponential, with noise."""
    found, real = asked(losses, at)

    assert found.answer.low <= real <= found.answer.high
    assert found.answer.value == pytest.approx(real, rel=0.25)
    assert found.answer.status == VALIDATED
    assert {row.form for row in found.forms if row.counts} <= set(FORMS)


def test_the_same_log_gets_the_same_answer() -> None:
    """Drawing has a seed; another one moves the interval a little."""
    known = log(noisy(4 * STEPS**-0.4)[:HALF])
    target = 4 * 1300**-0.4

    assert (
        forecast_steps_to_loss(known, target).answer == forecast_steps_to_loss(known, target).answer
    )
    assert (
        forecast_steps_to_loss(known, target).answer
        != forecast_steps_to_loss(known, target, seed=1).answer
    )


def test_a_higher_level_is_a_wider_interval() -> None:
    """Of the same futures."""
    known = log(noisy(4 * STEPS**-0.4)[:HALF])
    narrow, wide = (forecast_steps_to_loss(known, 0.23, level=level).answer for level in (0.5, 0.9))

    assert wide.low < narrow.low < narrow.high < wide.high


def test_a_target_that_the_log_reaches_is_read_off() -> None:
    """The first step at which the mean of the last two is no higher than 2.5."""
    losses = np.array([5.0, 4.0, 2.0, 4.0, 3.0, 2.0, *[2.0] * 10])
    found = forecast_steps_to_loss(log(losses), 2.5, window=2)

    assert found.reached
    assert (found.answer.low, found.answer.value, found.answer.high) == (6, 6, 6)
    assert found.forms == ()
    assert found.warnings == ()


def test_a_loss_that_rose_after_it_reached_the_target_is_said_to() -> None:
    """Noise may touch a target long before the loss stays there."""
    found = forecast_steps_to_loss(log(np.array([5.0, 2.0, *[3.0] * 10])), 2.5, window=1)

    assert found.answer.value == 2
    assert found.warnings == ("the mean has risen since, to 3",)


def test_a_target_below_the_asymptote_is_refused() -> None:
    """The sentence says where the loss levels off and what could be asked for."""
    with pytest.raises(
        RefusedError, match=r"level off anywhere between .*; log more steps, or ask"
    ):
        forecast_steps_to_loss(log(noisy(2 * np.exp(-STEPS / 300) + 0.5)[:HALF]), 0.45)


def test_what_is_said_to_be_answerable_is_answered() -> None:
    """The number at the end of a refusal."""
    known = log(noisy(6 * STEPS**-0.3)[:HALF])
    with pytest.raises(RefusedError) as caught:
        forecast_steps_to_loss(known, 0.35)
    target = float(str(caught.value).split("ask for ")[1].split()[0])

    assert math.isfinite(forecast_steps_to_loss(known, target * 1.001).answer.high)


def test_a_rising_loss_is_refused() -> None:
    """By its own sentence."""
    with pytest.raises(RefusedError, match=r"the loss rises: by 0\.[0-9]+ over the steps known"):
        forecast_steps_to_loss(log(noisy(1 + STEPS / 2000)[:HALF]), 0.5)


def test_a_loss_that_stands_is_refused() -> None:
    """Nothing but noise is left."""
    with pytest.raises(RefusedError, match="no longer falls measurably"):
        forecast_steps_to_loss(log(noisy(np.ones(HALF), spread=0.1, seed=3)), 0.5)


def test_constant_losses_are_refused() -> None:
    """Not even noise."""
    with pytest.raises(RefusedError, match="no longer falls measurably"):
        forecast_steps_to_loss(log(np.ones(40)), 0.5)


@pytest.mark.parametrize("target", [math.nan, math.inf])
def test_a_target_is_a_number(target: float) -> None:
    """Others are said to be none."""
    with pytest.raises(RefusedError, match="expected a finite loss"):
        forecast_steps_to_loss(log(4 * STEPS**-0.4), target)


def test_a_short_log_is_refused() -> None:
    """Also where only what follows a change is short."""
    with pytest.raises(RefusedError, match="11 losses are too few; log at least 12"):
        forecast_steps_to_loss(log(4 * STEPS[:11] ** -0.4), 0.5)
    rates = np.where(STEPS[:100] <= 95, 0.1, 0.01)
    with pytest.raises(RefusedError, match="5 losses since the learning rate changed at step 96"):
        forecast_steps_to_loss(log(4 * STEPS[:100] ** -0.4, rates), 0.1)


def test_a_window_must_leave_something_to_compare() -> None:
    """Half of the log at most."""
    with pytest.raises(RefusedError, match="a mean of 60 losses is too much for a log with 100"):
        forecast_steps_to_loss(log(4 * STEPS[:100] ** -0.4), 0.1, window=60)


def test_a_long_log_is_averaged() -> None:
    """And says so; its window is in logged losses all the same."""
    steps = np.arange(1.0, 25_001)
    losses = noisy(6 * steps**-0.3)
    found = forecast_steps_to_loss(LossLog(steps, losses), 6 * 30_000**-0.3, window=1000)

    assert found.warnings == ("3 losses at a time were averaged",)
    assert found.window == 999
    assert found.answer.low < 30_000 < found.answer.high


def test_other_levels_are_not_validated() -> None:
    """The study looked at one level."""
    known = log(noisy(10 - np.log(STEPS), spread=0.01)[:HALF])

    assert forecast_steps_to_loss(known, 10 - math.log(1200)).answer.status == VALIDATED
    assert (
        forecast_steps_to_loss(known, 10 - math.log(1200), level=0.8).answer.status == UNVALIDATED
    )


def test_only_what_follows_a_change_of_the_learning_rate_counts() -> None:
    """The loss falls to a new law at step 400, and the answer follows that."""
    losses = np.where(STEPS <= 400, 3.0, 1 / (0.01 * np.maximum(STEPS - 400, 0) + 0.5))
    rates = np.where(STEPS <= 400, 0.1, 0.01)
    found = forecast_steps_to_loss(log(noisy(losses)[:HALF], rates[:HALF]), float(losses[1149]))

    assert found.since == 401
    assert found.answer.low < 1150 < found.answer.high


def test_a_change_that_may_come_is_waited_for() -> None:
    """A rate that fell after step 600 for the first time may fall again after step 1,200."""
    losses = np.where(STEPS <= 600, 3.0, 1 / (0.01 * np.maximum(STEPS - 600, 0) + 0.5))
    known = log(noisy(losses)[:HALF], np.where(STEPS <= 600, 0.1, 0.01)[:HALF])
    target = float(losses[1149])

    with pytest.raises(
        RefusedError, match=r"the rate may change at step 1,200 \(it fell after step"
    ):
        forecast_steps_to_loss(known, target)
    assert forecast_steps_to_loss(known, target, next_change=math.inf).answer.high > 1190


def test_optimus_alone_follows_its_own_form_and_no_other() -> None:
    """Exact on a hyperbola; on a power law it levels off too early."""
    hyperbola = 1 / (0.01 * STEPS + 0.5) + 0.1

    assert optimus_alone(log(hyperbola[:HALF]), float(hyperbola[1499])).steps == pytest.approx(
        1500, rel=0.05
    )
    assert optimus_alone(log(4 * STEPS[:HALF] ** -0.1), 4 * 2000**-0.1).steps > 2400


def test_the_last_slope_of_a_rising_loss_leads_nowhere() -> None:
    """It never gets to a lower target."""
    assert last_slope(STEPS, STEPS, -1.0) == math.inf


def test_real_trainings_reach_targets_within_the_interval_or_are_refused() -> None:
    """The first half of 2,000 steps is known: SGD, Adam, a rate that falls, one that rises."""
    runs = read_runs(LOSSES)
    asked = [
        one for name in SHOWN for one in questions(name, runs[name]) if one.cut == "2000 steps"
    ]
    answered = [one for one in asked if one.answer is not None]

    assert len({one.run for one in answered}) >= 2
    assert all(one.holds for one in answered)


@pytest.mark.parametrize(
    ("steps", "losses"),
    [
        (STEPS[:100], 2 - STEPS[:100] / 100),
        (STEPS[:40], 1e-300 * STEPS[39::-1]),
        (np.append(STEPS[:20], 1e9 + STEPS[:20]), 1 / STEPS[:40]),
        (2.0 ** np.arange(40), 1 / STEPS[:40]),
        (np.linspace(0.01, 1, 40), 1 / STEPS[:40]),
        (STEPS[:100], np.where(STEPS[:100] == 50, 1e6, 1 / STEPS[:100])),
        (STEPS[:40], -np.log(STEPS[:40])),
    ],
    ids=["line", "tiny", "gap", "geometric", "parts of a step", "spike", "below zero"],
)
def test_odd_logs_are_answered_or_refused(steps: np.ndarray, losses: np.ndarray) -> None:
    """Without a warning or a huge table."""
    target = losses[-1] - 0.05 * abs(losses[-1])
    with contextlib.suppress(RefusedError):
        assert (
            forecast_steps_to_loss(LossLog(steps, losses), float(target), window=1).answer.low
            > steps[-1]
        )
