"""How long a job takes: on made-up steps, and on the steady and drifting series of others."""

from __future__ import annotations

import numpy as np
import pytest

from foretrace.analysis.evidence.evidence import UNVALIDATED, VALIDATED
from foretrace.errors import RefusedError
from foretrace.job.runtime.change_points import pace_change, startup_steps
from foretrace.job.runtime.forecast import forecast_runtime, plain_product, two_lengths
from foretrace.job.runtime.sampling_error import between_periods, relative_interval
from tests.support.paths import SHARED

SERIES = SHARED / "fixtures" / "chronus-iterations"
CALM = [5.0, *np.tile([0.110, 0.112, 0.111, 0.113], 15)]
STEADY = [5.0, *np.tile([0.10, 0.12, 0.11, 0.13], 15)]


@pytest.fixture(scope="module")
def series() -> dict[str, np.ndarray]:
    """Read the public series of the Chronus artifact: seconds of each iteration."""
    if not SERIES.is_dir():
        pytest.skip(f"the iteration series of Chronus are not at {SERIES}")
    return {path.stem: np.load(path) for path in sorted(SERIES.glob("*.npy"))}


def test_the_start_is_paid_once() -> None:
    """A first step of 5 s, then 0.115 s on average: 1,000 steps take 119.9 s."""
    found = forecast_runtime(STEADY, 1000)

    assert found.startup == 1
    assert found.startup_s == 5.0
    assert found.sample == 60
    assert found.step.value == pytest.approx(0.115)
    assert found.total.value == pytest.approx(5 + 999 * 0.115)
    assert found.total.low < found.total.value < found.total.high


def test_steps_that_were_all_measured_are_known() -> None:
    """A job that the samples hold completely takes what they took."""
    found = forecast_runtime(STEADY, 61)

    assert found.total.value == pytest.approx(sum(STEADY))
    assert found.total.low == found.total.value == found.total.high
    assert found.total.status == VALIDATED
    assert found.more == 0


def test_a_job_shorter_than_its_samples_is_their_first_part() -> None:
    """Nothing is refused of a job of which everything is known."""
    assert forecast_runtime([5.0, 0.1, 0.2], 2).total.value == 5.1


def test_only_a_part_may_be_averaged() -> None:
    """The rest shows whether the pace lasts: it does not enter the mean."""
    found = forecast_runtime([*STEADY, *[0.12] * 60], 1000, sample=60)

    assert found.step.value == pytest.approx(0.115)
    assert found.sample == 60


@pytest.mark.parametrize(
    ("seconds", "startup"),
    [
        ([9.0, *[1.0, 1.2, 1.1] * 8], 1),
        ([9.0, 3.0, 2.0, 0.5, *[1.0, 1.2, 1.1] * 8], 4),  # each outside the range of all later
        ([1.0, *[1.0, 1.2, 1.1] * 8], 1),  # skipped as it was said
        ([9.0, *[2.0, 2.1] * 5, *[1.0, 1.1, 1.2] * 8], 11),  # a level shift that makes it faster
        ([9.0, *[0.5, 0.6] * 5, *[1.0, 1.1, 1.2] * 8], 1),  # becoming slower is no warm-up
        ([9.0, *[2.0, 2.1] * 12, *[1.0, 1.1, 1.2] * 4], 1),  # nor is what lasts most of the sample
    ],
)
def test_a_start_up_is_what_no_later_step_is_like(seconds: list[float], startup: int) -> None:
    """By the range of all later steps, or by a change of pace for the better."""
    assert startup_steps(np.array(seconds), 1, 0.05) == startup


def test_a_start_up_leaves_half_of_the_steps() -> None:
    """Steps that fall without end are not all start-up."""
    assert startup_steps(np.arange(20.0, 0.0, -1.0), 1, 0.05) == 10


@pytest.mark.parametrize("seconds", [[1.0] * 20, [1.0, 2.0], []])
def test_where_nothing_varies_nothing_changes(seconds: list[float]) -> None:
    """Equal steps have one pace, and so have too few."""
    assert pace_change(np.array(seconds)) is None


@pytest.mark.parametrize("alike", [0.0, 0.5])
def test_a_pace_that_lasts_is_rarely_taken_for_a_change(alike: float) -> None:
    """About one in twenty steady series raises an alarm, whether or not neighbours are alike."""
    random = np.random.default_rng(1)
    alarms = 0
    for _ in range(400):
        noise = random.standard_normal(300)
        for at in range(1, 300):
            noise[at] += alike * noise[at - 1]
        alarms += pace_change(10 + noise) is not None

    assert 0.02 <= alarms / 400 <= 0.085


def test_the_mean_of_a_sample_is_as_exact_as_it_says() -> None:
    """Intervals of independent steps hold the mean of many more in about 90 of 100 cases."""
    random = np.random.default_rng(2)
    held = 0
    for _ in range(300):
        sample = random.gamma(4, 1, 50)
        low, high = relative_interval(sample, 1e6)
        held += sample.mean() * (1 - low) <= 4 <= sample.mean() * (1 + high)

    assert 0.85 <= held / 300 <= 0.95


def test_periods_that_differ_stay_in_the_interval() -> None:
    """Five levels make the interval wider than the same values well mixed."""
    levels = np.repeat([1.0, 1.04, 0.98, 1.05, 0.99], 10) * np.tile([0.99, 1.01], 25)
    mixed = np.random.default_rng(3).permutation(levels)

    assert between_periods(levels) == pytest.approx(0.031, abs=0.001)
    assert between_periods(mixed) < 0.01


def test_a_few_odd_steps_at_the_end_are_no_change_of_pace() -> None:
    """Less than a tenth of the sample says nothing of what follows."""
    assert forecast_runtime([*CALM[:-3], 0.2, 0.2, 0.2], 600).startup == 1


def test_more_samples_are_asked_for_where_they_help() -> None:
    """Steps that scatter by half need more of them to be within 1 %; periods never average out."""
    scattered = [9.0, *np.tile([0.05, 0.15, 0.1, 0.2, 0.05, 0.1, 0.2], 8)]

    assert (forecast_runtime(scattered, 5000, within=0.01).more or 0) > 56
    assert forecast_runtime(scattered, 5000, within=0.2).more == 0
    assert forecast_runtime(scattered, 5000, within=0.001).more is None


@pytest.mark.parametrize(
    ("seconds", "steps", "options", "words"),
    [
        ([1.0], 100, {}, "1 samples are too few; take 10 more samples"),
        ([1.0] * 15, 100, {"sample": 20}, "take 6 more samples"),
        ([5.0, 4.0, 3.0, 2.0, *[1.0, 1.1] * 4], 100, {}, "after a start-up of 4 steps"),
        ([0.1] * 11, 100, {}, "1.1 s of samples cannot show what comes and goes in seconds"),
        ([1.0, 1.0, float("nan"), 1.0], 100, {}, "step 3 took nan s"),
        ([1.0, 0.0], 100, {}, "step 2 took 0.0 s"),
        ([1.0] * 20, 0, {}, "a job of 0 steps"),
        ([1.0] * 20, 100, {"within": 1.5}, "within 150% of the total"),
        ([1.0, *[1.0, 1.1] * 20, *[2.0, 2.1] * 20], 100, {}, "the pace changes: steps took 1.05 s"),
    ],
)
def test_what_carries_no_answer_is_refused(
    seconds: list[float], steps: float, options: dict[str, float], words: str
) -> None:
    """Each refusal says in one line why, and what to do."""
    with pytest.raises(RefusedError, match=words) as found:
        forecast_runtime(seconds, steps, **options)  # type: ignore[arg-type]

    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("seconds", "steps", "status"),
    [
        (CALM, 600, VALIDATED),
        (CALM, 700, UNVALIDATED),  # more than ten times as long as its sample
        (CALM[:31], 300, UNVALIDATED),  # a sample of 30
        (STEADY, 600, UNVALIDATED),  # the middle half spreads by 13 %
    ],
)
def test_what_was_not_tested_says_so(seconds: list[float], steps: int, status: str) -> None:
    """Intervals were tested from 40 steps that spread little, for jobs ten times as long."""
    assert forecast_runtime(seconds, steps).total.status == status


def test_other_readings_of_the_same_samples() -> None:
    """The plain product counts the start at every step, two lengths only once."""
    seconds = np.array([5.0, 0.1, 0.1, 0.1])

    assert plain_product(seconds, 1000) == pytest.approx(1325)
    assert two_lengths(seconds, 1000) == pytest.approx(5.3 + 996 * 0.1)


def test_single_steps_of_longer_samples() -> None:
    """A sample of ten steps each: the total stays, a step is a tenth of it."""
    found = forecast_runtime(STEADY, 100).of_single_steps(10)

    assert found.step.value == pytest.approx(0.0115)
    assert (found.startup, found.sample, found.more) == (10, 600, 0)


def test_steady_series_of_others_are_predicted_from_fifty_steps(
    series: dict[str, np.ndarray],
) -> None:
    """All of them: 1.2 % off on average, 4 % at most, and the interval holds 85 to 95 %."""
    errors, held = [], []
    for name, seconds in series.items():
        if "a3c" not in name:
            found = forecast_runtime(seconds[:51], len(seconds)).total
            errors.append(abs(found.value / seconds.sum() - 1))
            held.append(found.low <= seconds.sum() <= found.high)

    assert len(errors) == 32
    assert np.mean(errors) < 0.012
    assert max(errors) < 0.04
    assert 0.85 <= np.mean(held) <= 0.95


def test_steady_series_of_others_are_not_refused_for_what_they_do_later(
    series: dict[str, np.ndarray],
) -> None:
    """With all their steps at hand, the same fifty give the same answer."""
    for name, seconds in series.items():
        if "a3c" not in name:
            whole = forecast_runtime(seconds, len(seconds), sample=50)
            assert whole == forecast_runtime(seconds[:51], len(seconds))


@pytest.mark.parametrize("sample", [None, 50])
def test_drifting_series_of_others_are_refused(
    series: dict[str, np.ndarray], sample: int | None
) -> None:
    """The steps of A3C take ten times as long in the end as in the beginning."""
    for name, seconds in series.items():
        if "a3c" in name:
            for steps in (len(seconds), 2 * len(seconds)):
                with pytest.raises(RefusedError):
                    forecast_runtime(seconds, steps, sample=sample)


def test_a_second_of_a_drifting_series_is_too_little(series: dict[str, np.ndarray]) -> None:
    """Fifty steps of A3C look steady; but all of them together last little more than a second."""
    for name, seconds in series.items():
        if "a3c" in name:
            with pytest.raises(RefusedError, match="more samples"):
                forecast_runtime(seconds[:51], len(seconds))


def test_a_job_that_ends_within_a_sample_of_several_steps_takes_its_share() -> None:
    """Half a sample is half its time: not none of it."""
    assert forecast_runtime([5.0, *[1.0] * 20], 1.5).total.value == pytest.approx(5.5)
    assert forecast_runtime([5.0, *[1.0] * 20], 0.5).total.value == pytest.approx(2.5)


def test_a_small_drift_is_answered_and_never_validated() -> None:
    """Each step takes a 20,000th longer: 0.5 % at the end of the sample, and 5 % later."""
    noise = 0.002 * np.random.default_rng(0).standard_normal(1000)
    seconds = 0.1 * (1 + np.arange(1000) / 20_000 + noise)

    found = forecast_runtime(seconds[:100], 1000)

    assert found.drift == pytest.approx(0.0012, abs=0.0005)
    assert found.total.status == UNVALIDATED
    assert forecast_runtime(0.1 * (1 + noise[:100]), 1000).drift == 0
