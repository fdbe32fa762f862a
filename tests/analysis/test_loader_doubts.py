"""What a recording does not show of loader workers is doubted where an answer rests on it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from foretrace.analysis.baseline import run_experiment
from foretrace.analysis.loader_doubts import doubt_loader, loader_bound_ns
from foretrace.analysis.prediction import predict
from foretrace.graph.literal import literal
from foretrace.graph.state import SeenLoader
from tests.support.jobs.simple import META

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

MS = 1_000_000
NEVER_WAITED = SeenLoader(MS, handover_seen=True, shortest_ns=MS, waited=False)


def job(seen: SeenLoader | None, next_ms: int = 1, **loader: int) -> Graph:
    """Build a step: *next_ms* of next(), 2 ms of the host, then 7 of a kernel and its sync."""
    tasks = [
        ("next", "host", 0, next_ms * MS, "load"),
        ("train", "host", 0, 2 * MS, "forward"),
        ("cudaLaunchKernel", "launch", 0, 0, "forward"),
        ("gemm", "kernel", 1, 7 * MS, "forward"),
        ("sync", "sync", 0, 0, "forward"),
    ]
    graph = literal(
        tasks,
        [(2, 3, "launch", 0), (3, 4, "return", 0)],
        meta=replace(META, loader=dict(loader) or None),
        wrap=True,
        measured_step_ns=(9.0 + next_ms) * MS,
    )
    return graph.with_state(loader=seen)


@pytest.mark.parametrize(
    ("what_if", "codes", "bound"),
    [
        ("faster_kernels(speedup=3)", ["loader-cost-hidden"], 10),
        ("faster_kernels(speedup=1.1)", [], 10),  # 9.4 ms: at most 7 % off
        ("faster_host(speedup=2)", [], 5),  # workers too
    ],
)
def test_faster_step_may_wait_for_workers_that_never_were_waited_for(
    what_if: str, codes: list[str], bound: float
) -> None:
    """A batch may take them as long as the recorded step; the interval reaches that far."""
    experiment = run_experiment(job(NEVER_WAITED), what_if)
    prediction = predict(job(NEVER_WAITED), what_if)

    assert loader_bound_ns(experiment) == bound * MS
    assert [doubt.code for doubt in doubt_loader(experiment)] == codes
    assert prediction.interval_ns[1] >= bound * MS
    assert [doubt.code for doubt in prediction.doubts] == codes


def test_recorder_that_timed_a_batch_tells_more() -> None:
    """8 ms alone are 2 for each of 4 workers: nothing is doubted; 24 are 6, of 4 more than 10 %."""
    doubts = []
    for load_ms in (8, 24):
        graph = job(NEVER_WAITED, workers=4, load_ns=load_ms * MS)
        experiment = run_experiment(graph, "faster_kernels(speedup=7)")
        doubts.append([doubt.code for doubt in doubt_loader(experiment)])

    assert doubts == [[], ["loader-cost-hidden"]]


@pytest.mark.parametrize(
    "seen", [None, NEVER_WAITED._replace(waited=True)], ids=["no workers", "waited for"]
)
def test_cost_that_is_seen_is_not_doubted(seen: SeenLoader | None) -> None:
    """Without workers there is nothing to hide, and waits show what a batch costs."""
    experiment = run_experiment(job(seen), "faster_kernels(speedup=3)")

    assert loader_bound_ns(experiment) == 0
    assert doubt_loader(experiment) == ()


@pytest.mark.parametrize(
    ("speedup", "codes"), [(3, ["loader-handover-hidden"]), (1, [])], ids=["5.3 ms", "10 ms"]
)
def test_hand_over_that_no_call_shows_is_doubted_once_it_counts(
    speedup: int, codes: list[str]
) -> None:
    """Every call waited 1 ms or more: 0.8 of it may be hand-over."""
    seen = SeenLoader(200_000, handover_seen=False, shortest_ns=MS, waited=True)
    experiment = run_experiment(job(seen), f"faster_kernels(speedup={speedup})")

    assert [doubt.code for doubt in doubt_loader(experiment)] == codes


@pytest.mark.parametrize(("handover", "codes"), [(2, ["loader-handover-hidden"]), (1, [])])
def test_calls_that_never_waited_may_have_waited_all(handover: int, codes: list[str]) -> None:
    """If their 2 ms are waiting, more workers save most of it; 1 ms is little of 10."""
    seen = NEVER_WAITED._replace(handover_ns=handover * MS)
    experiment = run_experiment(job(seen, handover), "dataloader(workers=8, recorded_workers=4)")

    assert [doubt.code for doubt in doubt_loader(experiment)] == codes
