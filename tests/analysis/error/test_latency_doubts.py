"""An answer that rests on a latency nobody recorded spans its range; a wide one is doubted."""

from __future__ import annotations

import pytest

from foretrace.analysis.prediction import predict
from foretrace.graph.literal import literal


def predicted(*size_and_us: tuple[float, int], bandwidth: float) -> tuple[list[str], list[float]]:
    """Return doubts and interval, in µs, of all-reduces one after the other."""
    tasks = [("ncclAllReduce", "collective", 0, 1_000 * us, None) for _, us in size_and_us]
    graph = literal(
        tasks,
        columns={"bytes": [size for size, _ in size_and_us]},
        wrap=True,
        measured_step_ns=sum(1e3 * us for _, us in size_and_us),
    )
    prediction = predict(graph, f"network(bandwidth={bandwidth})")
    doubts = [doubt.code for doubt in prediction.doubts]
    return doubts, [end / 1_000 for end in prediction.interval_ns]


@pytest.mark.parametrize(
    ("recorded", "bandwidth", "doubts", "within"),
    [
        # 100 µs that hold 7.8 to 36.4 of latency: 30.9 to 52.3 µs with four times the bandwidth
        ([(4e6, 100)], 4.0, ["collective-latency"], (30.9, 52.3)),
        ([(4e6, 1_000)], 4.0, [], (255.9, 277.3)),  # the same of ten times as much is 8 %
        ([(4e3, 12), (4e6, 988)], 4.0, [], (261.7, 269.3)),  # a small one: at most half as much off
    ],
)
def test_both_ends_of_the_range_are_asked(
    recorded: list[tuple[float, int]],
    bandwidth: float,
    doubts: list[str],
    within: tuple[float, float],
) -> None:
    """The interval holds both answers; a doubt is said where they are more than 10 % apart."""
    said, (low, high) = predicted(*recorded, bandwidth=bandwidth)

    assert said == doubts
    assert low <= within[0] + 0.1
    assert high >= within[1] - 0.1
