"""Predicted against measured, next to two null models."""

from __future__ import annotations

from dataclasses import replace

import pytest

from foretrace.analysis.validation import compare, validate
from foretrace.errors import TransformError
from foretrace.graph.literal import literal
from foretrace.transforms.scenario import parse_scenario

SCENARIO = parse_scenario(['faster_kernels(pattern="gemm", speedup=3)'])
BEFORE = literal(
    [("gemm", "kernel", 0, 30_000, None), ("relu", "kernel", 0, 10_000, None)],
    wrap=True,
    measured_step_ns=40_000,
)
AFTER = literal(
    [("gemm", "kernel", 0, 15_000, None), ("relu", "kernel", 0, 10_000, None)],
    wrap=True,
    measured_step_ns=25_000,
)


def test_errors_are_signed_shares_of_the_measured_value() -> None:
    """20 µs predicted, 25 measured, 40 before."""
    found = validate(BEFORE, AFTER, SCENARIO)

    assert found.error == pytest.approx(-0.2)
    assert found.null_no_change_error == pytest.approx(0.6)
    assert found.measured_after_source == "profiled"
    assert not found.is_inside_interval


def test_a_better_measurement_can_be_given() -> None:
    """What the user measured without the profiler is the truth."""
    found = validate(BEFORE, AFTER, SCENARIO, measured_ns=20_000)

    assert found.error == pytest.approx(0.0)
    assert found.measured_after_source == "given"
    assert found.is_inside_interval


def test_the_paper_has_no_constants_for_some() -> None:
    """A user's own figure is no published constant: the second null model is absent or equal."""
    found = validate(BEFORE, AFTER, SCENARIO)

    assert found.null_paper_error in {None, found.error}


def test_a_second_recording_that_drifts_is_doubted() -> None:
    """Its second half is a fifth slower; a given measurement has no halves."""
    steps_ns = (25_000, 25_000, 30_000, 30_000)
    drifting = replace(AFTER, meta=replace(AFTER.meta, unprofiled_step_ns=steps_ns))
    doubted = validate(BEFORE, drifting, SCENARIO).prediction
    (doubt,) = (each for each in doubted.doubts if each.code == "drift")

    assert doubt.text.startswith("in the second recording, the steps measured without the profiler")
    assert "drift by 20.0%" in doubt.text
    assert doubted.status == "unvalidated"
    assert not validate(BEFORE, AFTER, SCENARIO).prediction.doubts
    assert not validate(BEFORE, drifting, SCENARIO, measured_ns=1).prediction.doubts


def test_a_second_recording_that_its_own_replay_misses_is_doubted() -> None:
    """A twin of 25 µs that was measured at 31 without the profiler measured something else."""
    other = replace(AFTER, meta=replace(AFTER.meta, unprofiled_step_ns=(31_000,) * 4))
    found = validate(BEFORE, other, SCENARIO).prediction
    (doubt,) = found.doubts

    assert doubt.code == "replay-off"
    assert doubt.text.startswith("in the second recording, the replay of the unchanged job is -19")
    assert found.status == "unvalidated"


@pytest.mark.parametrize("measured_ns", [0.0, -1.0, float("nan"), float("inf")])
def test_a_measurement_is_a_positive_time(measured_ns: float) -> None:
    """Nothing else can be compared with."""
    with pytest.raises(TransformError, match="measured step after"):
        compare(BEFORE, SCENARIO, measured_ns, "given")


def test_a_second_recording_of_a_busy_machine_is_doubted() -> None:
    """A third of it others had the cores: the share is named, and what to do."""
    busy = replace(AFTER, meta=replace(AFTER.meta, warnings={"cpu_taken_away": 33}))
    doubted = validate(BEFORE, busy, SCENARIO).prediction

    assert [doubt.code for doubt in doubted.doubts] == ["disturbed"]
    assert "33 % of the unprofiled steps other processes had the CPU: stop them" in str(
        doubted.doubts[0]
    )
    assert doubted.status == "unvalidated"


def test_recordings_under_other_allocators_are_no_pair() -> None:
    """Thresholds that one process had and the other had not change the step by themselves."""
    settings = {"allocator": {"MALLOC_TRIM_THRESHOLD_": "1073741824"}}
    fixed = replace(AFTER, meta=replace(AFTER.meta, extra=settings))

    (doubt,) = validate(BEFORE, fixed, SCENARIO).prediction.doubts
    assert doubt.code == "allocator-differs"
    assert "MALLOC_TRIM_THRESHOLD_" in doubt.text
    assert not validate(replace(BEFORE, meta=fixed.meta), fixed, SCENARIO).prediction.doubts
