"""A prediction, for tests of how it is shown."""

from __future__ import annotations

from foretrace.analysis.prediction import Prediction
from foretrace.analysis.unchanged.measured_step import Measured

PREDICTION = Prediction(
    scenario=("batch_size(n=64)",),
    measured=Measured(10e6, "unprofiled", (10_000_000,)),
    replayed_before_ns=10e6,
    replayed_after_ns=15e6,
    interval_ns=(14e6, 16e6),
    step_interval=(1.0, 1.0),
    status="validated",
    critical_path_before={"kernel": 10e6},
    critical_path_after={"kernel": 15e6},
    costs={"roofline": 0.6, "recorded": 0.4},
    samples_before=32,
    samples_after=64,
    samples=2.0,
    assumptions=("linear above saturation",),
    warnings=(),
)
