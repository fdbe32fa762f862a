"""A prediction is the measured step times the ratio of the replays."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from foretrace.analysis.error.prediction_interval import interval, step_interval
from foretrace.analysis.evidence import validated_errors
from foretrace.analysis.evidence.validated_errors import load_table
from foretrace.analysis.prediction import predict
from foretrace.analysis.unchanged.identity import identity
from foretrace.analysis.unchanged.measured_step import measured_step
from foretrace.errors import TransformError
from foretrace.graph.literal import literal
from foretrace.transforms.scenario import parse_scenario
from tests.support.jobs.kernels import device_bound
from tests.support.jobs.simple import cpu_job, gpu_job
from tests.support.recordings.calibrations import calibration

FASTER_GEMM = 'faster_kernels(pattern="gemm", speedup=3)'


def vouch(monkeypatch: pytest.MonkeyPatch, half_width: float) -> None:
    """Let pairs have tested `faster_kernels`, taken for a rule, where `device_bound` runs.

    All of them are within *half_width*, as |ln|.
    """
    place = predict(device_bound(), parse_scenario([FASTER_GEMM])).place
    assert place is not None
    tested = [{**place._asdict(), "source": "rule", "untuned": 9, "tuned": 0}]
    scale = {"base": half_width, "quantile": 1.0}
    monkeypatch.setitem(load_table(), "interval", {"gpu": scale})
    monkeypatch.setitem(load_table(), "evidence", {"faster_kernels": tested})
    monkeypatch.setattr(validated_errors, "GIVEN", ())


def test_the_ratio_of_the_replays_scales_the_measured_step() -> None:
    """Replays of 40 and 20 µs turn a measured step of 80 µs into 40."""
    found = predict(device_bound(), parse_scenario([FASTER_GEMM]))

    assert (found.replayed_before_ns, found.replayed_after_ns) == (40_000, 20_000)
    assert (found.predicted_ns, found.speedup) == (40_000, 2)


def test_the_unprofiled_step_is_the_truth_where_it_is_known() -> None:
    """Steps measured without the profiler are preferred, without their highest and lowest fifth."""
    found = measured_step(device_bound(unprofiled_step_ns=(50, 60, 60, 60, 900)))

    assert (found.step_ns, found.source) == (60, "unprofiled")


def test_the_recorded_step_is_the_truth_otherwise() -> None:
    """Without such a measurement the recording itself has to do, and a warning says so."""
    found = predict(device_bound(), parse_scenario([FASTER_GEMM]))

    assert (found.measured.step_ns, found.measured.source) == (80_000, "profiled")
    assert any("under the profiler only" in warning for warning in found.warnings)


def test_identity_compares_replay_and_measurement() -> None:
    """A replay of 40 µs against a measured 80 µs is off by half."""
    found = identity(device_bound())

    assert (found.replayed_ns, found.error) == (40_000, -0.5)
    assert found.settled


def test_the_critical_path_adds_up_to_the_step() -> None:
    """No time is left unexplained, before or after."""
    found = predict(device_bound(), parse_scenario([FASTER_GEMM]))

    assert found.critical_path_before == {"kernel": 40_000}
    assert found.critical_path_after == {"kernel": 20_000}


def test_the_sources_of_costs_are_shares_of_the_work() -> None:
    """Half of the work after the change is recorded, half is the user's figure."""
    found = predict(device_bound(), parse_scenario([FASTER_GEMM]))

    assert found.costs == {"recorded": 0.5, "user": 0.5}


def test_a_transform_without_pairs_is_unvalidated() -> None:
    """The label and the warning name the transform."""
    found = predict(device_bound(), parse_scenario([FASTER_GEMM]))

    assert found.status == "unvalidated"
    assert any("validated faster_kernels" in warning for warning in found.warnings)


def test_a_validated_error_widens_the_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """A factor of 1.25 makes 20 µs an interval of 16 to 25."""
    vouch(monkeypatch, math.log(1.25))
    graph = replace(device_bound(), measured_step_ns=40_000)

    found = predict(graph, parse_scenario([FASTER_GEMM]))

    assert found.status == "validated"
    assert found.interval_ns == pytest.approx((16_000, 25_000))


def test_a_replay_that_misses_the_measured_step_validates_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """40 µs against 80: a doubt, no label, and an interval as wide as what is missed.

    If the 40 µs that the replay lacks stay as they are, the step takes 60; if they halve, 40, which
    may be off by that factor of two.
    """
    vouch(monkeypatch, 0.0)

    found = predict(device_bound(), parse_scenario([FASTER_GEMM]))

    assert found.status == "unvalidated"
    assert found.doubts[0].code == "replay-off"
    assert found.doubts[0].text.startswith("the replay of the unchanged job is -50.0% off")
    assert found.interval_ns == pytest.approx((20_000, 80_000))
    assert found.doubts == identity(device_bound()).doubts
    assert "in doubt: replay-off" in repr(found)


@pytest.mark.parametrize("measured_ns", [80_000, 30_000])
def test_an_interval_covers_both_readings_of_what_a_replay_misses(
    measured_ns: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """40 µs as replayed, 32 after: of 80 measured, 64 (in proportion) or 72 (by as much)."""
    vouch(monkeypatch, 0.0)
    graph = replace(device_bound(), measured_step_ns=measured_ns)
    asked = 'faster_kernels(pattern="relu", speedup=5)'

    found = predict(graph, parse_scenario([asked]))

    low, high = found.interval_ns
    assert found.shifted_ns == measured_ns - 8_000
    assert low <= min(found.shifted_ns, found.predicted_ns)
    assert high >= max(found.shifted_ns, found.predicted_ns)


def test_steps_that_drift_validate_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second half of the unprofiled steps is 10 % slower: the machine was not quiet."""
    vouch(monkeypatch, 0.0)
    steps = (38_000,) * 5 + (41_800,) * 5

    found = predict(device_bound(unprofiled_step_ns=steps), parse_scenario([FASTER_GEMM]))

    assert found.status == "unvalidated"
    assert "drift by 10.0%" in {doubt.code: doubt.text for doubt in found.doubts}["drift"]


def test_more_samples_per_step_count_as_speed() -> None:
    """Twice the batch in twice the time is no gain."""
    before = predict(device_bound(batch=32), parse_scenario([FASTER_GEMM]))
    doubled = replace(before, samples=2.0, replayed_after_ns=80_000)

    assert (doubled.speedup, doubled.predicted_ns) == (1, 160_000)


def test_steps_that_vary_make_an_interval() -> None:
    """The interval of the mean lies around 1 and is the same on every run."""
    low, high = step_interval((90, 100, 110, 100))

    assert 0.9 < low < 1 < high < 1.1
    assert (low, high) == step_interval((90, 100, 110, 100))


def test_one_step_has_no_variation() -> None:
    """A single sample says nothing about its spread."""
    assert step_interval((100,)) == (1.0, 1.0)


def test_an_interval_never_goes_below_zero() -> None:
    """Off by a factor of four, up or down, is no negative time."""
    assert interval(100.0, (1.0, 1.0), math.log(4)) == pytest.approx((25.0, 400.0))


def test_a_step_without_work_cannot_be_predicted() -> None:
    """There is no ratio to form."""
    empty = literal([("gemm", "kernel", 0, 0, None)], wrap=True, measured_step_ns=1)

    with pytest.raises(TransformError, match="no work"):
        predict(empty, parse_scenario([FASTER_GEMM]))


@pytest.mark.parametrize(
    ("speedup", "told"),
    [
        (50, "50 times as fast: check that the change says what you mean; a step then takes 0.02"),
        (
            0.02,
            "0.02 times as fast: check that the change says what you mean; a step then takes 50",
        ),
    ],
)
def test_more_than_tenfold_says_what_is_left(speedup: float, told: str) -> None:
    """800 of 40,000 ns, all of it kernels."""
    found = predict(device_bound(), parse_scenario([f"faster_kernels(speedup={speedup})"]))

    assert f"{told} times as long (kernel 100%)" in [doubt.text for doubt in found.doubts]


def test_ninefold_is_nothing_special() -> None:
    """No warning."""
    found = predict(device_bound(), parse_scenario(["faster_kernels(speedup=9)"]))

    assert "many-times" not in {doubt.code for doubt in found.doubts}


@pytest.mark.parametrize(
    ("text", "is_missed"),
    [
        ("faster_host(speedup=2)", False),
        ("cpu_cores(n=2)", False),
        ("gradient_accumulation(k=1)", False),
        ("amp", True),
    ],
)
def test_a_calibration_is_missed_where_it_could_tell(text: str, *, is_missed: bool) -> None:
    """Not of a figure that the user gives, of what cannot be timed, or of what changes nothing."""
    told = calibration([(name, "[]", 100.0) for name in ("aten::addmm", "aten::relu", "aten::mm")])
    found = predict(cpu_job(), parse_scenario([text, "faster_host(speedup=3)"]), told)

    missed = [warning for warning in found.warnings if "does not cover" in warning]
    assert len(missed) == is_missed
    assert all(warning.startswith(f"the calibration does not cover {text}: ") for warning in missed)


def test_a_change_that_leaves_nothing_cannot_be_predicted() -> None:
    """Kernels a thousand million times as fast, and no host: the step would take no time."""
    with pytest.raises(TransformError, match="nothing is left of the step"):
        predict(device_bound(), parse_scenario(["faster_kernels(speedup=1e9)"]))


def test_added_transfers_are_not_scaled_with_the_recording() -> None:
    """A replay that is 2 % short says nothing about a network: what it adds is added."""
    before = predict(cpu_job(), ())
    missed = replace(
        before,
        measured=replace(before.measured, step_ns=102.0),
        replayed_before_ns=100.0,
        replayed_after_ns=300.0,
        critical_path_before={"host": 100.0},
        critical_path_after={"host": 110.0, "collective": 150.0, "p2p": 40.0},
    )

    assert missed.predicted_ns == 1.02 * 110 + 190


def test_an_interval_of_several_is_no_narrower_than_that_of_any_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Twice the batch and twice the speed cancel: the step stays, what each may miss does not."""
    monkeypatch.setitem(load_table(), "unvalidated", {"missed": 0.5})
    job = gpu_job(steps=3)
    texts = ("batch_size(n=256, recorded=32)", "faster_kernels(speedup=8)")
    parts, whole = [predict(job, text) for text in texts], predict(job, texts)

    for part in parts:
        low, high = (end / part.predicted_ns for end in part.interval_ns)
        assert whole.interval_ns[0] <= whole.predicted_ns * low * 1.0001
        assert whole.interval_ns[1] >= whole.predicted_ns * high * 0.9999


def test_a_small_change_of_an_untested_what_if_is_no_sure_one() -> None:
    """A CUDA graph that changes nothing is no surer than any answer on a GPU was."""
    graph = gpu_job(work=10_000_000)
    found = predict(graph, "cuda_graphs")
    known = math.exp(load_table()["interval"]["gpu"]["untested"])

    assert abs(found.speedup - 1) < 0.05
    assert found.interval_ns[0] <= found.predicted_ns / known
    assert found.interval_ns[1] >= found.predicted_ns * known
