"""Collectives of the only recorded rank are doubted where waiting for the others would matter."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from foretrace.analysis.prediction import predict
from foretrace.graph.literal import literal

if TYPE_CHECKING:
    from foretrace.graph.model import Graph


def step(waited_us: int, compute_us: int = 0) -> Graph:
    """Build a step of one rank of two: two all-reduces of 1 ms each, the first of which waits."""
    tasks = [
        ("ncclAllReduce", "collective", 0, 1_000 * (1_000 + waited_us), None),
        ("ncclAllReduce", "collective", 0, 1_000_000, None),
        ("gemm", "kernel", 0, 1_000 * compute_us, None),
    ]
    graph = literal(
        tasks,
        columns={"bytes": [4e6, 4e6, float("nan")]},
        wrap=True,
        measured_step_ns=sum(float(task[3]) for task in tasks),
    )
    return replace(graph, meta=replace(graph.meta, world_size=2))


@pytest.mark.parametrize(
    ("graph", "what_if", "doubts"),
    [
        (step(800), "network(bandwidth=4.0)", ["rank-waits-hidden"]),
        (step(800), "faster_kernels(pattern='nccl', speedup=2.0)", ["rank-waits-hidden"]),
        (step(800), "faster_kernels(pattern='.*', speedup=2.0)", []),  # the other rank as well
        (step(800), "faster_kernels(pattern='gemm', speedup=2.0)", []),
        (step(800, compute_us=9_000), "network(bandwidth=4.0)", []),  # little of that step
        (step(50), "network(bandwidth=4.0)", []),
    ],
)
def test_waiting_for_ranks_not_recorded_is_doubted(
    graph: Graph, what_if: str, doubts: list[str]
) -> None:
    """A quarter of 2.8 ms is 0.7; with 0.8 of waiting that stays it is 1.3."""
    prediction = predict(graph, what_if)

    assert [doubt.code for doubt in prediction.doubts] == doubts


def test_the_interval_reaches_as_far_as_the_waiting_may() -> None:
    """Half of 2 ms and 0.8 of waiting: 1.8 ms."""
    prediction = predict(step(800), "faster_kernels(pattern='nccl', speedup=2.0)")

    assert prediction.predicted_ns == pytest.approx(1_400_000)
    assert prediction.interval_ns[1] >= 1_800_000
