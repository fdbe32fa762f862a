"""Work of a device that a recording lacks is refused or doubted, by name."""

from __future__ import annotations

import pytest

from foretrace.errors import GraphError
from foretrace.graph.build import build
from tests.support.recordings.events import (
    Row,
    call,
    kernel,
    note,
    op,
    step_ms,
    steps,
    sync,
    trace,
)

STEPS = 6


def launches(count: int) -> list[Row]:
    """Return launches, and a synchronisation."""
    return [*(call(10 * n, 5, n) for n in range(count)), sync(10 * count, 900)]


def doubts(rows: list[Row]) -> list[tuple[str, str]]:
    """Return code and place of what is doubted."""
    return [(doubt.code, doubt.place) for doubt in build(trace(rows)).state.doubts]


@pytest.mark.parametrize("name", ["cudaLaunchKernel", "cudaMemcpyAsync", "urEnqueueKernelLaunch"])
def test_launches_without_any_work_are_refused(name: str) -> None:
    """The device part is missing, and the text says how to record it."""
    rows = [call(0, 5, 1, name=name), sync(10, 900)]

    with pytest.raises(GraphError, match=rf"6 calls \({name}\).*the device part is missing.*CUDA"):
        build(trace(steps(STEPS, 1_000, rows)))


def test_calls_of_a_foreign_runtime_without_work_are_refused() -> None:
    """Whatever it is that they do."""
    rows = [call(0, 5, 1, name="runFunction - job"), call(10, 900, name="synchronize")]

    with pytest.raises(GraphError, match="runFunction - job, synchronize"):
        build(trace(steps(STEPS, 1_000, rows)))


def test_long_waits_without_any_work_are_refused() -> None:
    """What they waited for was launched unseen."""
    with pytest.raises(GraphError, match=r"6 calls \(cudaDeviceSynchronize\)"):
        build(trace(steps(STEPS, 1_000, [op("a", 0, 50), sync(100, 900)])))


def test_calls_that_launch_nothing_are_a_job_of_the_cpu() -> None:
    """A CPU job may ask for devices, and clear no bytes."""
    rows = [call(0, 500, name="cudaGetDeviceCount"), call(500, 5, name="cudaMemsetAsync")]

    assert build(trace(steps(STEPS, 1_000, rows))).measured_step_ns == 1_000_000


def test_named_ranges_alone_are_refused() -> None:
    """Where CUDA was not traced an answer would say that nothing takes any time."""
    with pytest.raises(GraphError, match="named ranges alone, neither calls nor work of a device"):
        build(trace(steps(STEPS, 1_000, [note("forward", 10, 500)])))


def test_work_without_any_call_is_doubted() -> None:
    """What the host waits for is not known."""
    rows = [op("aten::mm", 0, 50), kernel(20, 800, -1)]

    assert ("calls-missing", "") in doubts(steps(STEPS, 1_000, rows))


def test_calls_of_sycl_before_unified_runtime_are_understood() -> None:
    """The device takes 900 of 1,000 µs, and the host waits for it."""
    rows = [call(0, 10, 1, name="piEnqueueKernelLaunch"), kernel(20, 900, 1)]
    rows += [sync(15, 925, name="piQueueFinish")]
    recording = trace(steps(STEPS, 1_000, rows))

    assert doubts(steps(STEPS, 1_000, rows)) == []
    assert step_ms(recording, 0.5) == pytest.approx(0.55, abs=0.01)


def test_launches_that_nothing_answers_are_doubted() -> None:
    """The kernels in the window are of launches before it."""
    rows = [call(0, 10, 1), call(10, 10, 2), kernel(20, 100, 1)]
    rows += [kernel(121, 700, -1)]

    assert doubts(steps(STEPS, 1_000, rows)) == [
        ("device-work-missing", "steps 1 to 4 of 4 in the window, cudaLaunchKernel")
    ]


def test_answered_launches_are_not_doubted() -> None:
    """Nor a fill of no bytes, nor launches that are captured into a graph."""
    rows = [call(0, 10, 1), kernel(20, 100, 1), call(15, 5, 2, name="cudaMemsetAsync")]
    rows += [
        call(30, 1, name="cudaStreamBeginCapture"),
        *(call(35 + n, 1, 10 + n) for n in range(9)),
        call(50, 1, name="cudaStreamEndCapture"),
        sync(60, 125),
    ]

    assert doubts(steps(STEPS, 1_000, rows)) == []


def test_foreign_calls_that_last_are_doubted() -> None:
    """They may wait for the device: nothing says so."""
    rows = [call(0, 10, 1), kernel(20, 800, 1), call(20, 810, name="waitForAll")]

    assert doubts(steps(STEPS, 1_000, rows)) == [("unknown-runtime", "waitForAll")]
