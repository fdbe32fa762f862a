"""What a recording leaves open is a doubt of an answer only where it may move that answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from foretrace.analysis.prediction import Prediction, predict
from foretrace.analysis.unchanged.baseline import run_experiment
from foretrace.graph.build import build
from foretrace.graph.literal import literal
from foretrace.graph.state import Doubt
from tests.support.jobs.simple import META
from tests.support.recordings.events import Row, call, copy, kernel, steps, sync, trace

if TYPE_CHECKING:
    from foretrace.transforms.scenario import ScenarioLike

GRAPH = "cudaGraphLaunch"


def ask(rows: list[Row], length: float, what_if: ScenarioLike) -> Prediction:
    """Predict a job whose step of *length* consists of *rows*; times in µs."""
    return predict(build(trace(steps(6, length, rows))), what_if)


def codes(prediction: Prediction) -> list[str]:
    """Return the codes of its doubts."""
    return [doubt.code for doubt in prediction.doubts]


def late_download() -> list[Row]:
    """Return a kernel until 110 µs, and a download that starts at 700 µs and blocks until 709."""
    rows = [call(0, 4, 1), kernel(10, 100, 1), call(5, 704, 2, name="cudaMemcpyAsync")]
    return [*rows, copy(700, 5, 2, "DtoH (Device -> Pageable)")]


@pytest.mark.parametrize(
    ("what_if", "doubts", "reaches_ms"),
    [
        ("faster_kernels(speedup=2)", ["untraced-wait"], 0.375),  # 50 + 295 of 590, and the rest
        ("faster_kernels(speedup=1.02)", [], 0.707),
        ((), ["untraced-wait"], 0.720),  # no change: all that the recording leaves open
    ],
)
def test_untraced_wait_may_be_for_what_changes(
    what_if: ScenarioLike, doubts: list[str], reaches_ms: float
) -> None:
    """590 µs are kept; if they are work like the rest they shrink with it, which is in the range.

    Where nothing that takes long changes, both come to the same and there is no doubt.
    """
    prediction = ask(late_download(), 720, what_if)

    assert codes(prediction) == doubts
    assert prediction.interval_ns[0] / 1e6 <= reaches_ms + 0.005


def test_call_that_waited_for_something_untraced_may_wait_for_what_changes() -> None:
    """790 µs of a synchronisation follow no work: kernels twice as fast save 50 µs, or 440."""
    rows = [call(0, 4, 1), kernel(10, 100, 1), sync(20, 900)]

    assert codes(ask(rows, 1_000, "faster_kernels(speedup=2)")) == ["untraced-wait"]
    assert codes(ask(rows, 1_000, "faster_kernels(speedup=1.02)")) == []


@pytest.mark.parametrize(
    ("what_if", "doubts", "at_most_ms"),
    [
        ("faster_kernels(pattern='side', speedup=0.25)", ["graph-dependencies"], 0.380),
        ("faster_kernels(speedup=0.25)", [], 0.0),
        ("faster_host(speedup=2)", [], 0.0),
    ],
)
def test_order_within_a_graph_matters_where_its_kernels_change_unequally(
    what_if: str, doubts: list[str], at_most_ms: float
) -> None:
    """``b`` follows ``a``, and may wait for ``side``, too, which ends before both.

    Four times as long, ``side`` runs until 330 µs: ``b`` is over by then, or begins then.
    """
    rows = [
        call(0, 10, 1, name=GRAPH),
        kernel(10, 100, 1, name="a"),
        kernel(10, 80, 1, name="side", stream=20),
        kernel(111, 50, 1, name="b"),
        sync(12, 165),
    ]
    prediction = ask(rows, 170, what_if)

    assert codes(prediction) == doubts
    assert prediction.interval_ns[1] / 1e6 >= at_most_ms


@pytest.mark.parametrize(
    ("speedup", "doubts", "range_us"),
    [(1.5, [], (66, 67)), (10, ["launch-cost-unknown"], (10, 24))],
)
def test_assumed_cost_of_launches_matters_where_the_host_becomes_the_limit(
    speedup: float, doubts: list[str], range_us: tuple[int, int]
) -> None:
    """Two launches at 6 µs each, as is assumed, or at 3 or 12, before kernels of 50 µs."""
    name = "cudaLaunchKernel"
    tasks = [(name, "launch", 0, 6_000, None), (name, "launch", 0, 6_000, None)]
    tasks += [("gemm", "kernel", 1, 50_000, None), ("gemm", "kernel", 1, 50_000, None)]
    graph = literal(
        tasks, [(0, 2, "launch", 0), (1, 3, "launch", 0)], meta=META, wrap=True,
        measured_step_ns=100_000.0,
    )  # fmt: skip
    doubt = Doubt("launch-cost-unknown", "every launch waited", name)
    graph = graph.with_state(doubts=(doubt,), assumed_launches=(name,))
    prediction = predict(graph, f"faster_kernels(speedup={speedup})")
    low, high = prediction.interval_ns

    assert codes(prediction) == doubts
    assert low / 1e3 <= range_us[0] + 1
    assert high / 1e3 >= range_us[1]


def test_gap_that_was_never_recorded_is_in_the_range() -> None:
    """Ten kernels of 4 µs, launched every 20: five times as fast, they wait for each other."""
    rows = [call(20 * n, 5, n + 1) for n in range(10)]
    rows += [kernel(20 * n + 8, 4, n + 1) for n in range(10)]
    graph = build(trace(steps(6, 200, rows)))
    faster, same = (predict(graph, f"faster_host(speedup={ratio})") for ratio in (10, 1.2))

    assert faster.predicted_ns / 1e3 == pytest.approx(54, abs=0.1)
    assert faster.interval_ns[0] / 1e3 <= 49
    assert faster.interval_ns[1] / 1e3 >= 65
    assert codes(faster) == ["kernel-gap-unknown"]
    assert codes(same) == []
    assert run_experiment(graph, ()).other_steps_ns == {}
