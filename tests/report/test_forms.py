"""How results are shown where a golden file does not reach."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from foretrace.analysis.unchanged.measured_step import Measured
from foretrace.analysis.validation import Validation
from foretrace.graph.state import Doubt
from foretrace.report.forms import as_json, as_text
from tests.support.measured.predictions import PREDICTION


def test_a_larger_batch_is_compared_by_samples() -> None:
    """Twice the samples in 1.5 times the time is 1.33 times as fast."""
    text = as_text(PREDICTION)

    assert "15.00 ms  1.33x as fast in samples per second\n" in text
    assert "measured   10.00 ms  without the profiler\n" in text
    assert "Cost of the work after: 60.0% roofline, 40.0% recorded\n" in text
    assert "Assumes\n  - linear above saturation\n" in text


def test_doubts_come_first() -> None:
    """Below the heading, before the numbers; where there are none, no word of them."""
    doubt = Doubt("outlier-step", "one step took 5 ms", "step 3")
    doubted = replace(PREDICTION, doubts=(doubt,))
    shown = as_text(doubted).splitlines()

    assert shown[1:3] == ["Doubts", "  - outlier-step, step 3: one step took 5 ms"]
    assert shown[3].startswith("  measured")
    assert "Doubts" not in as_text(PREDICTION)
    assert json.loads(as_json(doubted))["doubts"] == [
        {"code": "outlier-step", "text": "one step took 5 ms", "place": "step 3"}
    ]


def test_half_a_percent_is_no_gain() -> None:
    """What is smaller than any error is not called one."""
    same = replace(PREDICTION, replayed_after_ns=20.02e6)

    assert "no gain" in as_text(same)


@pytest.mark.parametrize(
    ("paper_ns", "shown"), [(None, "Daydream has no constants for this"), (30e6, "+100.0%")]
)
def test_the_second_null_model_may_be_absent(paper_ns: float | None, shown: str) -> None:
    """Where the paper has nothing to say, nothing is made up."""
    validation = Validation(PREDICTION, 15e6, "given", paper_ns)

    assert shown in as_text(validation)
    assert "inside the interval" in as_text(validation)


def test_unknown_times_are_null() -> None:
    """JSON has no infinity."""
    assert '"measured_after_ms": null' in as_json(
        Validation(PREDICTION, float("inf"), "given", None)
    )


@pytest.mark.parametrize("show", [as_json, as_text])
def test_only_results_can_be_shown(show: object) -> None:
    """Anything else is our own bug."""
    assert callable(show)

    with pytest.raises(TypeError, match="int"):
        show(1)


@pytest.mark.parametrize(("replayed_ns", "off"), [(10.1e6, None), (10.5e6, "+5.0%")])
def test_a_path_of_another_length_than_the_step_says_so(
    replayed_ns: float, off: str | None
) -> None:
    """Its parts add up to the replayed step, which may not be the measured one."""
    said = "adds up to the step as replayed"
    shown = as_text(replace(PREDICTION, replayed_before_ns=replayed_ns))

    assert (said in shown) == (off is not None)
    assert off is None or f"  {said}, {off} off the measured one\n" in shown


def test_times_are_rounded_honestly() -> None:
    """Four digits of the step; what is there and too short to show is not said to be nothing."""
    path = {"kernel": 10e6, "host": 100.0, "launch": 0.0}
    shown = as_text(replace(PREDICTION, critical_path_before=path))

    assert "  kernel                     10.00  15.00\n" in shown
    assert "  host                       <0.01      0\n" in shown
    assert "  launch                         0      0\n" in shown


def test_a_step_of_microseconds_keeps_its_digits() -> None:
    """52 µs are not 0.05 ms."""
    fast = replace(PREDICTION, measured=Measured(52e3, "profiled", ()), critical_path_after={})

    assert "measured    0.052 ms" in as_text(fast)
