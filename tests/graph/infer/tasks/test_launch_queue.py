"""Launches outstanding at a call, those made before the recording included."""

from __future__ import annotations

import numpy as np
import pytest

from foretrace.graph.infer.tasks.launch_queue import LaunchQueue, count_outstanding
from foretrace.graph.infer.waits.waits import split_waiting
from foretrace.graph.model import Rules
from foretrace.tracer.trace import Device
from tests.support.recordings.events import A100, Row, call, kernel, parsed

DEPTH = 1_023
PERIOD = 21.0


def queue_of(rows: list[Row]) -> LaunchQueue:
    """Count what is outstanding at each launch of *rows*."""
    return count_outstanding(*parsed(rows), [A100])


def opened_late(launches: int, *, own: float = 2.0, seen: bool = True) -> list[Row]:
    """Every launch waits for a slot of a queue that was full before; kernels take 20 µs.

    The kernels of 1,023 calls that were made before are *seen*, or they are not. A call costs
    *own*, and the host does 2 µs of other work.
    """
    rows = [
        kernel(PERIOD * number, 20, number)
        for number in range(DEPTH + launches)
        if seen or number >= DEPTH
    ]
    for number in range(launches):
        length = PERIOD - 2 if number else own
        rows.append(call(PERIOD * (number + 1) - length, length, DEPTH + number))
    return rows


def test_kernels_without_a_call_that_had_not_started_were_outstanding() -> None:
    """Of three unrecorded launches one has started when the first call is made."""
    rows = [kernel(10 * number, 8, number) for number in range(4)]

    assert queue_of([*rows, call(5, 2, 3)]).outstanding.tolist() == [2]


def test_graph_takes_one_place() -> None:
    """Its three kernels have one call; without it they have one correlation."""
    before = [kernel(100 + 10 * number, 8, 1) for number in range(3)]
    graph = [kernel(200 + 10 * number, 8, 2) for number in range(3)]
    rows = [*before, *graph, kernel(300, 8, 3)]
    calls = [call(0, 5, 2, name="cudaGraphLaunch"), call(6, 5, 3)]

    assert queue_of([*rows, *calls]).outstanding.tolist() == [1, 2]


@pytest.mark.parametrize(("seen", "outstanding"), [(True, DEPTH - 1), (False, DEPTH)])
def test_queue_that_was_full_before_the_recording(*, seen: bool, outstanding: int) -> None:
    """Whether the kernels of earlier calls are recorded or not: their time tells the number."""
    queue = queue_of(opened_late(300, seen=seen))

    assert np.unique(queue.outstanding).tolist() == [outstanding]
    assert queue.is_full.all()


def test_few_calls_that_last_tell_of_unrecorded_launches() -> None:
    """60 calls are too few to say at what pace they come, but each waits for 250 µs."""
    rows = [kernel(20_000 + 250 * number, 240, number) for number in range(60)]
    rows += [call(250 * number, 245 - number, number) for number in range(60)]
    rows += [kernel(number, 0.5, 100 + number, stream=8) for number in range(5)]
    queue = queue_of([*rows, *(call(number, 0.2, 100 + number, thread=2) for number in range(5))])

    assert queue.outstanding.max() == DEPTH


def test_idle_stream_is_no_full_queue() -> None:
    """The first kernel starts 2 ms after its call, and no call is long."""
    rows = [call(10 * number, 5, number) for number in range(20)]
    rows += [kernel(2_000 + 10 * number, 5, number) for number in range(20)]

    assert queue_of(rows).outstanding.tolist() == list(range(20))


def filled(depth: int, own: float) -> list[Row]:
    """Kernels of 20 µs; after *depth* prompt launches each one is made when a kernel is done.

    The prompt ones take 5 µs, the others *own*.
    """
    calls = [call(6 * number, 5, number) for number in range(depth)]
    calls += [call(PERIOD * n + 6 * depth - own, own, depth + n) for n in range(1, 300)]
    return [*calls, *(kernel(6 * depth + PERIOD * n, 20, n) for n in range(depth + 299))]


@pytest.mark.parametrize("name", ["NVIDIA A100-SXM4-40GB", "AMD Instinct MI300X"])
@pytest.mark.parametrize(("own", "limit"), [(19.0, 200), (5.0, None)])
def test_queue_of_another_depth_shows(name: str, own: float, limit: int | None) -> None:
    """Launches that last with 200 outstanding waited; prompt ones did not, say for an event."""
    found = count_outstanding(*parsed(filled(200, own)), [Device(0, name)])
    usual = DEPTH if name.startswith("NVIDIA") else None

    assert found.limit == (usual if limit is None else pytest.approx(limit, abs=1))


def test_every_call_of_a_full_queue_waits_however_short() -> None:
    """None of 19 µs is long. One call of 2 µs was free: no other costs more."""
    waits = split_waiting(*parsed(opened_late(300)), Rules(), [A100])

    assert waits.queued.sum() == 299
    assert np.unique(waits.work_ns).tolist() == [2_000, 6_000]
    assert [doubt.code for doubt in waits.doubts] == ["launch-cost-unknown"]


def test_cost_of_a_launch_comes_from_calls_that_did_not_wait() -> None:
    """On another stream, through another API, a launch costs 3 µs: no prior, no doubt."""
    free = [call(10 * number, 3, 5_000 + number, thread=2) for number in range(5)]
    free = [{**row, "name": "cudaLaunchKernelExC"} for row in free]
    free += [kernel(10 * number + 5, 3, 5_000 + number, stream=8) for number in range(5)]
    waits = split_waiting(*parsed([*opened_late(300, own=19), *free]), Rules(), [A100])

    assert waits.queued.sum() == 300
    assert np.unique(waits.work_ns).tolist() == [3_000]
    assert waits.doubts == []
