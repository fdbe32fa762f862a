"""Costs of batch sizes from recordings: by the what-if, or between two that were recorded."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from foretrace.analysis.prediction import predict
from foretrace.analysis.unchanged.baseline import replay_baseline
from foretrace.errors import RefusedError
from foretrace.graph.literal import literal
from foretrace.job.batch_schedule.simulated_costs import between, epoch_costs
from foretrace.tracer.trace import TraceMeta

if TYPE_CHECKING:
    from foretrace.analysis.unchanged.baseline import Baseline

META = TraceMeta(format="foretrace", source="literal")


def recorded(size: int | None, *, other_name: str = "relu", lag_ns: int = 0) -> Baseline:
    """Return a job whose products take 100 µs and 10 µs per sample, the update 300 µs."""
    samples = size or 1
    tasks = [
        ("mm", "host", 0, 100_000 + 10_000 * samples, "forward"),
        (other_name, "host", 0, 5_000 * samples, "forward"),
        ("adam", "host", 0, 300_000, "optimizer"),
    ]
    total = 400_000 + 15_000 * samples + 3 * lag_ns
    meta = replace(META, batch_size=size, unprofiled_step_ns=(total,) * 3)
    graph = literal(tasks, meta=meta, measured_step_ns=total, wrap=True, lag_ns=lag_ns)
    return replay_baseline(graph)


def test_between_two_recordings_each_operator_is_a_line() -> None:
    """Work that follows the samples and work that stays are told apart."""
    assert between(recorded(16), recorded(256), 64) == pytest.approx(400_000 + 15_000 * 64)


def test_both_ends_are_met() -> None:
    """A recorded size costs what was measured, host time between operators included."""
    costs = epoch_costs([recorded(256), recorded(16, lag_ns=1_000)], [16, 64, 256], 1024)

    assert costs[16].seconds == pytest.approx((400_000 + 15_000 * 16 + 3_000) * 64 / 1e9)
    assert costs[256].seconds == pytest.approx((400_000 + 15_000 * 256) * 4 / 1e9)
    assert costs[64].doubt > costs[16].doubt > 0


def test_an_operator_without_a_counterpart_grows_by_the_rule() -> None:
    """Another kernel was picked for the larger batch."""
    found = between(recorded(16), recorded(256, other_name="relu_large"), 64)

    assert found == pytest.approx(400_000 + 15_000 * 64, rel=0.1)


def test_one_recording_predicts_by_the_what_if() -> None:
    """The nearest of several, where a size lies outside of all."""
    one = recorded(32)
    foreseen = predict(one.graph, "batch_size(n=64)").predicted_ns

    assert epoch_costs([one], [64], 128)[64].seconds == pytest.approx(2 * foreseen / 1e9)
    outside = epoch_costs([recorded(8), one], [64], 128)[64]
    assert outside.seconds == pytest.approx(2 * foreseen / 1e9)
    assert outside.doubt > 0


@pytest.mark.parametrize(
    ("sizes", "text"), [((None,), "does not say its batch size"), ((8, 8), "two recordings have 8")]
)
def test_recordings_that_cannot_be_told_apart(sizes: tuple[int | None, ...], text: str) -> None:
    """Each must say its own batch size."""
    with pytest.raises(RefusedError, match=text):
        epoch_costs([recorded(size) for size in sizes], [16], 100)
