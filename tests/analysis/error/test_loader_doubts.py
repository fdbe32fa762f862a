"""What a recording does not show of loader workers is doubted where an answer rests on it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from foretrace.analysis.error.loader_doubts import doubt_loader, loader_bound_ns, most_loading_ns
from foretrace.analysis.prediction import predict
from foretrace.analysis.unchanged.baseline import run_experiment
from foretrace.graph.literal import literal
from foretrace.graph.state import Doubt, SeenLoader
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


@pytest.mark.parametrize(("workers", "most"), [(8, 10), (4, 10), (2, 20), (1, 40)])
def test_interval_reaches_as_far_as_fewer_workers_may_take(workers: int, most: float) -> None:
    """A batch costs one of 4 workers 4 steps of 10 ms at most."""
    what_if = f"dataloader(workers={workers}, recorded_workers=4)"
    experiment = run_experiment(job(NEVER_WAITED), what_if)
    prediction = predict(job(NEVER_WAITED), what_if)

    assert most_loading_ns(experiment) == most * MS
    assert prediction.interval_ns[1] >= most * MS


@pytest.mark.parametrize(
    "seen", [None, NEVER_WAITED._replace(waited=True)], ids=["no workers", "waited for"]
)
def test_cost_that_is_seen_is_not_doubted(seen: SeenLoader | None) -> None:
    """Without workers there is nothing to hide, and waits show what a batch costs."""
    experiment = run_experiment(job(seen), "faster_kernels(speedup=3)")

    assert loader_bound_ns(experiment) == 0
    assert doubt_loader(experiment) == ()


def waiting(next_ms: float, *, alike: bool) -> Graph:
    """Build a step of 2 ms of host and 3 of a kernel, whose call of next() takes *next_ms*.

    0.2 ms of that are taken for the hand-over, the rest for waiting for a batch.
    """
    tasks = [
        ("next", "host", 0, MS // 5, "load"),
        ("train", "host", 0, 2 * MS, "forward"),
        ("cudaLaunchKernel", "launch", 0, 0, "forward"),
        ("gemm", "kernel", 1, 3 * MS, "forward"),
        ("sync", "sync", 0, 0, "forward"),
        ("batch", "load", 2, round((5 + next_ms) * MS), "load"),
    ]
    edges = [(2, 3, "launch", 0), (3, 4, "return", 0), (5, 0, "data", 0)]
    step_ns = (5.2 + next_ms) * MS
    graph = literal(tasks, edges, meta=META, wrap=True, measured_step_ns=step_ns)
    seen = SeenLoader(MS // 5, False, round(next_ms * MS), waited=True, alike=alike)
    return graph.with_state(loader=seen)


HIDDEN = ["loader-handover-hidden"]


@pytest.mark.parametrize(
    ("next_ms", "alike", "what_if", "codes", "others"),
    [
        (1, 1, "faster_kernels(speedup=1)", [], [6.0, 6.0]),  # another reading, the same step
        (1, 1, "faster_kernels(speedup=3)", HIDDEN, [6.0, 4.0]),  # nobody waits: 1 + 2 + 1
        (1, 0, "faster_kernels(speedup=3)", [], [6.0]),  # uneven calls do wait
        (1, 1, "dataloader(workers=0, recorded_workers=1)", HIDDEN, [5.2]),  # free batches
        (5, 0, "dataloader(workers=4, recorded_workers=1)", HIDDEN, [6.4]),  # 5.2 + 1.2
    ],
)
def test_calls_that_are_alike_may_all_have_found_their_batch_ready(
    next_ms: float, alike: int, what_if: str, codes: list[str], others: list[float]
) -> None:
    """Then next() takes as long as it did, however fast the rest; both are in the interval."""
    experiment = run_experiment(waiting(next_ms, alike=bool(alike)), what_if)
    prediction = predict(waiting(next_ms, alike=bool(alike)), what_if)

    steps = experiment.other_steps_ns["loader-handover-hidden"]
    assert [step / MS for step in steps] == pytest.approx(others, rel=0.01)
    assert [doubt.code for doubt in prediction.doubts] == codes
    scale = prediction.measured.step_ns / experiment.baseline.timeline.step_ns
    assert prediction.interval_ns[0] <= min(steps) * scale
    assert prediction.interval_ns[1] >= max(steps) * scale


@pytest.mark.parametrize(
    ("handover", "recorded", "codes"),
    [(2, 1, ["loader-handover-hidden"]), (2, 4, []), (1, 1, [])],
)
def test_calls_that_never_waited_may_have_waited_all(
    handover: int, recorded: int, codes: list[str]
) -> None:
    """If 2 ms are waiting for one worker, more of them save most of it; 1 ms is little of 10.

    Several deliver in bursts: calls that take as long as each other waited for none of them.
    """
    seen = NEVER_WAITED._replace(handover_ns=handover * MS)
    what_if = f"dataloader(workers=8, recorded_workers={recorded})"
    experiment = run_experiment(job(seen, handover), what_if)

    assert [doubt.code for doubt in doubt_loader(experiment)] == codes


def bursting(slack: tuple[float, float], **loader: int) -> Graph:
    """Build a step of 2 ms of host and 2 of a kernel; a batch costs 10, or *slack* times that.

    One call waited 24 ms for what 4 workers delivered together.
    """
    tasks = [
        ("next", "host", 0, 0, "load"),
        ("train", "host", 0, 2 * MS, "forward"),
        ("cudaLaunchKernel", "launch", 0, 0, "forward"),
        ("gemm", "kernel", 1, 2 * MS, "forward"),
        ("sync", "sync", 0, 0, "forward"),
        ("batch", "load", 2, 10 * MS, "load"),
    ]
    graph = literal(
        tasks,
        [(2, 3, "launch", 0), (3, 4, "return", 0), (5, 0, "data", 0)],
        meta=replace(META, loader=dict(loader) or None),
        wrap=True,
        measured_step_ns=10.0 * MS,
    )
    seen = SeenLoader(0, handover_seen=True, shortest_ns=0, waited=True, slack=slack)
    seen = seen._replace(burst_ns=24 * MS, others_ns=4 * MS)
    doubt = Doubt("loader-bursts", "their number is not recorded")
    return graph.with_state(loader=seen, doubts=(doubt,))


@pytest.mark.parametrize(
    ("what_if", "codes", "low", "high"),
    [
        ("faster_host(speedup=1)", ["loader-bursts"], 7, 10),
        ("faster_host(speedup=2)", ["loader-bursts"], 3.5, 5),  # workers too
        ("faster_kernels(speedup=0.125)", [], 18, 18),  # 16 ms of a kernel hide all
        ("dataloader(workers=8, recorded_workers=4)", [], 5, 5),  # 40 ms a batch
    ],
)
def test_bursts_are_doubted_where_the_answer_rests_on_them(
    what_if: str, codes: list[str], low: float, high: float
) -> None:
    """A batch comes every 10 ms, or every 7: that is asked of the answer, and in its interval."""
    experiment = run_experiment(bursting((0.7, 1.0)), what_if)
    prediction = predict(bursting((0.7, 1.0)), what_if)

    others = experiment.other_steps_ns["loader-bursts"] or (experiment.after.step_ns,)
    assert [min(others) / MS, max(others) / MS] == pytest.approx([low, high])
    assert [doubt.code for doubt in prediction.doubts] == codes
    assert prediction.interval_ns[0] <= low * MS
    assert prediction.interval_ns[1] >= high * MS


@pytest.mark.parametrize(
    ("workers", "low", "high"), [(4, 8.5, 11.5), (0, 38.0, 50.0)], ids=["four", "none"]
)
def test_one_wait_leaves_open_what_a_batch_costs_workers_that_are_counted(
    workers: int, low: float, high: float
) -> None:
    """40 ms, or 34, or 46: in as many workers as delivered it, or after 4 ms of training."""
    what_if = f"dataloader(workers={workers}, recorded_workers=4)"
    experiment = run_experiment(bursting((0.6, 1.15)), what_if)
    prediction = predict(bursting((0.6, 1.15)), what_if)

    steps = [step / MS for step in experiment.other_steps_ns["loader-bursts"]]
    assert steps == pytest.approx([low, high])
    assert [doubt.code for doubt in prediction.doubts] == ["loader-bursts"]


def test_bursts_that_are_worth_little_are_not_doubted() -> None:
    """Batches that cost 5 % less are less than 10 % of the step."""
    assert predict(bursting((0.95, 1.0)), "faster_host(speedup=1)").doubts == ()


@pytest.mark.parametrize(
    ("load", "compute", "codes", "least"),
    [
        (10, 20, ["loader-handover-assumed"], 20.07),  # 2.5 ms are much of 22.5 …
        (10, 200, [], 200.07),  # … and little of 202.5
        (100, 20, [], 50),  # two workers set the pace either way
    ],
)
def test_assumed_hand_over_is_doubted_where_the_answer_rests_on_it(
    load: int, compute: int, codes: list[str], least: float
) -> None:
    """It may take as little as 0.07 ms; the interval reaches that far."""
    tasks = [("next", "host", 0, load * MS, "load"), ("train", "host", 0, compute * MS, "forward")]
    graph = literal(tasks, meta=META, wrap=True, measured_step_ns=float((load + compute) * MS))
    experiment = run_experiment(graph, "dataloader(workers=2)")
    prediction = predict(graph, "dataloader(workers=2)")

    assert experiment.other_steps_ns["loader-handover-assumed"] == pytest.approx((least * MS,))
    assert [doubt.code for doubt in prediction.doubts] == codes
    assert prediction.interval_ns[0] <= least * MS
