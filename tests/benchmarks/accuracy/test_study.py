"""Rows of the study from recordings: own pairs, public pairs, and what goes wrong with them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.accuracy import study
from foretrace.tracer.lab.pairs.read_archive import Pair
from foretrace.tracer.readers.load import load
from tests.support.recordings.calibrations import BF16, FP32, entries, file_of
from tests.support.recordings.kineto import write_small_trace

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.accuracy.rows import AccuracyStudy
    from foretrace.tracer.trace import Trace


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    """Load the small recording: steps of 1 ms, 0.85 of it on the device."""
    return load(write_small_trace(tmp_path))


def pair(trace: Trace, scenario: str = "faster_kernels(speedup=2)") -> Pair:
    """Return a pair of the small recording, measured at 2 ms before and 1 ms after."""
    return Pair("small", "small", "faster", scenario, trace, lambda: trace, 2e6, 1e6, 0.01)


def test_a_recorded_pair_is_predicted_from_its_own_measurement(trace: Trace) -> None:
    """The measured 2 ms are scaled by the ratio of the replays."""
    row, unchanged = study.recorded_rows(pair(trace))

    assert (row.before_ns, row.after_ns, row.noise) == (2e6, 1e6, 0.01)
    assert row.predicted_ns / row.before_ns == pytest.approx(0.575, abs=0.01)
    assert (row.hardware, row.transforms) == ("gpu", ("faster_kernels",))
    assert unchanged.measured_ns == 1e6


def amp_timed(device_ns: float) -> bytes:
    """Return a calibration: autocast makes the product's kernel take *device_ns* instead of 500."""
    rows = entries(
        [("aten::mm", FP32, 40.0), ("aten::relu", FP32, 30.0)],
        {"amp()": [("aten::mm", BF16, 40.0, 0), ("aten::relu", FP32, 30.0, 1)]},
    )
    times = (500.0, 200.0, device_ns, 200.0)
    return file_of([{**row, "device_ns": ns} for row, ns in zip(rows, times, strict=True)])


def test_a_pair_is_predicted_with_and_without_its_calibration(trace: Trace) -> None:
    """Of 0.85 ms on the device, 0.25 go: the step of 1 ms, which waits for it, takes 0.75."""
    timed = replace(pair(trace, "amp"), calibration=amp_timed(250.0))
    row, _ = study.recorded_rows(timed)

    assert row.source == "measured"
    assert row.calibrated_ns == pytest.approx(0.75 * 2e6, rel=0.01)
    assert row.rule_ns == study.recorded_rows(pair(trace, "amp"))[0].predicted_ns
    assert row.rule_ns != row.calibrated_ns


def test_a_calibration_of_something_else_tells_nothing(trace: Trace) -> None:
    """The pair then counts as predicted by rule."""
    row, _ = study.recorded_rows(replace(pair(trace), calibration=amp_timed(250.0)))

    assert (row.source, row.calibrated_ns) == ("rule", None)


def test_a_measurement_keeps_the_variation_of_the_recording(trace: Trace) -> None:
    """Steps of 90, 100 and 110 µs measured elsewhere as 200 become 180, 200 and 220."""
    known = replace(trace.meta, unprofiled_step_ns=(90_000, 100_000, 110_000))
    row, unchanged = study.recorded_rows(
        replace(pair(trace), before=replace(trace, meta=known), before_ns=200_000.0)
    )

    assert unchanged.measured_ns == 100_000
    assert row.predicted_ns == pytest.approx(200_000 * 0.575, rel=0.02)
    assert row.step_interval[0] < 1 < row.step_interval[1]


def test_an_archive_gives_rows_and_names_its_problems(
    trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pair whose change no what-if predicts is named with the reason."""
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "a.tar").touch()
    unknown = pair(trace, "channels_first()")
    pairs = [pair(trace), replace(unknown, name="unknown")]
    monkeypatch.setattr(study, "read_pairs", lambda _archive: pairs)
    found = study.run_study(
        {"shared": ".", "archives": ["*.tar"], "held_out": ["small"]}, tmp_path / "traces"
    )

    assert [(row.name, row.held_out) for row in found.pairs] == [("small", True)]
    assert [row.trace for row in found.identities] == ["small"]
    assert "channels_first" in found.problems["unknown"]


def entry(**settings: Any) -> dict[str, Any]:
    """Return a pair of the list: the small recording before and after."""
    return {
        "id": "P",
        "change": "faster",
        "before": "small_trace.json",
        "after": "small_trace.json",
        "scenario": ["faster_kernels(speedup=2)"],
        **settings,
    }


def run(tmp_path: Path, **settings: Any) -> AccuracyStudy:
    """Run a study of one public pair."""
    write_small_trace(tmp_path)
    listed = {"shared": ".", "archives": [], "pair": [entry(**settings)]}
    return study.run_study(listed, tmp_path / "traces")


def test_printed_throughput_is_the_truth_where_it_is_given(tmp_path: Path) -> None:
    """What was measured without the profiler replaces what the recordings show."""
    (row,) = run(tmp_path, before_ms=4.0, after_ms=2.0, tuned_on=True).pairs

    assert (row.before_ns, row.after_ns, row.tuned_on) == (4e6, 2e6, True)
    assert row.null_error == 1.0


def test_recordings_are_the_truth_otherwise(tmp_path: Path) -> None:
    """Both steps take 1 ms."""
    (row,) = run(tmp_path).pairs

    assert (row.before_ns, row.after_ns) == (1e6, 1e6)


def test_kernels_alone_can_be_compared(tmp_path: Path) -> None:
    """Another device says nothing about the host; pairs of one model are known as such."""
    (row,) = run(tmp_path, measure="kernels", model="small").pairs

    assert (row.before_ns, row.predicted_ns) == (850_000, 425_000)
    assert (row.model, row.is_of_one_device) == ("small", False)


def test_a_pair_can_be_scored_by_its_optimizer(tmp_path: Path) -> None:
    """The device time of that phase is halved: 0.15 ms become 0.075."""
    (row,) = run(tmp_path, measure="optimizer").pairs

    assert (row.before_ns, row.predicted_ns, row.paper_ns) == (150_000, 75_000, 75_000)
