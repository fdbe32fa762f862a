"""Where a recording ends before the device comes to its steps, the steps before stand for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from foretrace.analysis.prediction import predict
from foretrace.graph.build import build
from foretrace.graph.state import MISSING
from tests.support.recordings.events import Row, call, copy, kernel, note, step_ms, trace

if TYPE_CHECKING:
    from foretrace.tracer.trace import Trace

PERIOD, FIRST = 300, 1_000


def recording(
    *, recorded: float = 2.5, names: tuple[str, str] = ("a", "b"), odd: int = 0, jitter: float = 0
) -> Trace:
    """Six steps of 100 µs on the host with two launches; the device needs 300 µs for each.

    It is 20 steps behind: of its work *recorded* steps are in the recording, before *odd* ids that
    one step takes more. Every other step of the device takes *jitter* µs longer.
    """
    rows: list[Row] = []
    for step in range(6):
        more = odd * (step > 3)
        rows += [note(f"ProfilerStep#{step}", 100 * step, 100)]
        rows += [call(100 * step + 10 + 40 * n, 5, FIRST + 2 * step + n + more) for n in range(2)]
    for task in range(int(2 * recorded)):
        start = 50 + 150 * task + 50 * (task % 2) + jitter * (task // 2 % 2)
        number = FIRST - 40 + task
        length, name = (199, 99)[task % 2], names[task % 2]
        rows.append(
            copy(start, length, number, "DtoH (Device -> Pinned)")
            if name == "copy"
            else kernel(start, length, number, name=name)
        )
    return trace(rows)


def test_work_of_earlier_steps_is_that_of_the_recorded_calls() -> None:
    """300 µs a step: the device, not the host's 100, sets the pace."""
    graph = build(recording())
    kernels = graph.tasks[graph.tasks["kind"] == "kernel"]

    assert graph.measured_step_ns == PERIOD * 1_000
    assert kernels["name"].astype(str).tolist() == ["a", "b"] * graph.steps
    assert (graph.edges["kind"] == "launch").sum() == 2 * graph.steps
    assert [doubt.code for doubt in graph.state.doubts if doubt.code == MISSING] == [MISSING]


def test_steps_of_a_device_that_is_behind_shrink_with_its_work() -> None:
    """298 µs of work, and 2 between: twice as fast, 151 µs."""
    rows = recording()
    graph = build(rows)

    assert graph.state.period_spread == 0
    assert MISSING not in [d.code for d in predict(graph, "faster_kernels(speedup=2)").doubts]
    assert step_ms(rows) == pytest.approx(0.3, rel=0.01)
    assert step_ms(rows, 0.5) == pytest.approx(0.151, rel=0.01)


def test_steps_that_vary_stay_in_doubt() -> None:
    """Periods of 240 and 360 µs: the answer is as uncertain, and its range is as wide."""
    prediction = predict(build(recording(recorded=4, jitter=60)), "faster_kernels(speedup=1.5)")
    low, high = prediction.interval_ns

    assert MISSING in [doubt.code for doubt in prediction.doubts]
    assert high / low >= 1.4


@pytest.mark.parametrize(
    "rows",
    [
        recording(recorded=0.5),
        recording(recorded=1),
        recording(odd=1),
        recording(names=("a", "copy")),
    ],
    ids=["half a step", "no task twice", "steps take different ids", "a copy where a launch is"],
)
def test_what_does_not_repeat_is_left_alone(rows: Trace) -> None:
    """No work is made up: that of the recorded calls is missing, every answer is in doubt."""
    graph = build(rows)

    assert graph.state.period_spread is None
    assert not (graph.edges["kind"] == "launch").any()
    assert MISSING in [d.code for d in predict(graph, "faster_host(speedup=2)").doubts]
