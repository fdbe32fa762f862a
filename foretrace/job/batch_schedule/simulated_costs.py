"""What an epoch takes at each batch size: recordings in, costs of `job regimes` out.

One recording predicts every size by the ``batch_size`` what-if. From two or more, work is
interpolated operator by operator between the two sizes around the one that is asked for.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from foretrace.analysis.error.prediction_interval import step_interval
from foretrace.analysis.prediction import predict_from
from foretrace.analysis.unchanged.baseline import replay_scenario
from foretrace.errors import RefusedError
from foretrace.job.batch_schedule.epoch_costs import EpochCost
from foretrace.job.batch_schedule.file import Z
from foretrace.replaying.replay import replay
from foretrace.transforms.batching.batch_size import grow_between

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foretrace.analysis.unchanged.baseline import Baseline
    from foretrace.transforms.measured.calibration import Calibration

RECORDING_DOUBT, BETWEEN_DOUBT = 0.02, 0.03
"""Standard deviation of a recorded step beside those of other recordings, and of one interpolated
between two, as shares (docs/accuracy-job.md)."""


def epoch_costs(
    baselines: Sequence[Baseline],
    sizes: Sequence[int],
    samples: int,
    calibration: Calibration | None = None,
) -> dict[int, EpochCost]:
    """Return what an epoch of *samples* takes at each batch size.

    Raises
    ------
    RefusedError
        A recording does not say its batch size, or two have the same.
    TransformError
        The what-if ``batch_size`` does not apply.
    """
    recorded = _by_size(baselines)
    costs = {}
    for size in sizes:
        step_ns, doubt = _step(recorded, size, calibration)
        costs[size] = EpochCost(step_ns / 1e9 * samples / size, doubt)
    return costs


def _by_size(baselines: Sequence[Baseline]) -> dict[int, Baseline]:
    """Return the recordings by their batch size, the smallest first."""
    by_size: dict[int, Baseline] = {}
    for baseline in baselines:
        size = baseline.graph.meta.batch_size
        if size is None:
            raise RefusedError("a recording does not say its batch size; record it with one")
        if size in by_size:
            raise RefusedError(f"two recordings have {size} samples per step; give other sizes")
        by_size[size] = baseline
    return dict(sorted(by_size.items()))


def _step(
    recorded: dict[int, Baseline], size: int, calibration: Calibration | None
) -> tuple[float, float]:
    """Return the step in ns with *size* samples, and its standard deviation as a share.

    Pairs that validate the what-if doubled the batch: what is unknown adds up over doublings.
    """
    if size in recorded:
        measured = recorded[size].measured
        low, high = step_interval(measured.samples_ns)
        return float(measured.step_ns), float(np.hypot((high - low) / 2 / Z, RECORDING_DOUBT))
    for below, above in pairwise(recorded):
        if below < size < above:
            return between(recorded[below], recorded[above], size), BETWEEN_DOUBT
    nearest = min(recorded, key=lambda each: abs(np.log(each / size)))
    baseline = recorded[nearest]
    if calibration is not None:
        baseline = baseline.attach(calibration)
    prediction = predict_from(replay_scenario(baseline, f"batch_size(n={size})"))
    low, high = prediction.interval_ns
    doublings = max(abs(float(np.log2(nearest / size))), 1.0)
    return prediction.predicted_ns, doublings * (high - low) / 2 / Z / prediction.predicted_ns


def between(small: Baseline, large: Baseline, size: int) -> float:
    """Return the step in ns with *size* samples, between two recordings of the same job.

    The work of each operator is a line through its two recorded times; where it has no
    counterpart, the what-if ``batch_size`` says how it grows. Both ends are met exactly.
    """
    graphs = small.graph, large.graph
    least, most = (graph.meta.batch_size or 0 for graph in graphs)
    at = (size - least) / (most - least)
    first_ns = small.timeline.step_ns
    between_ns, last_ns = (replay(grow_between(*graphs, share)).step_ns for share in (at, 1.0))
    missed = (1 - at) * small.measured.step_ns / first_ns, at * large.measured.step_ns / last_ns
    return float(between_ns * sum(missed))
