"""Every rule of graph building and replay, switched off, changes an answer that is known."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from foretrace.graph.build import build
from foretrace.graph.model import Rules
from foretrace.replaying.replay import replay
from tests.support.recordings.events import (
    MULTI_FETCH,
    Row,
    call,
    copy,
    kernel,
    later,
    note,
    op,
    scaled,
    step_ms,
    steps,
    sync,
    trace,
)

if TYPE_CHECKING:
    from foretrace.tracer.trace import Trace

STEPS = 6


def after_small_kernels(rows: list[Row]) -> list[Row]:
    """Delay *rows* by 60 µs, in which three launches show the latency of an idle stream: 10."""
    small = [call(20 * number, 5, 90 + number) for number in range(3)]
    small += [kernel(20 * number + 10, 5, 90 + number) for number in range(3)]
    return small + [later(row, 60) for row in rows]


def test_waiting_is_no_work() -> None:
    """A sync waits 900 µs for a kernel. 3 times as fast, the step shrinks from 1 to 0.4 ms."""
    rows = [call(0, 10, 1), kernel(10, 900, 1), sync(10, 920)]
    recording = trace(steps(STEPS, 1_000, rows))

    assert step_ms(recording) == 1.0
    assert step_ms(recording, 1 / 3) == 0.4
    assert step_ms(recording, 1 / 3, split_waiting=False) == 1.0


def test_wait_that_nothing_explains_is_kept() -> None:
    """A download starts 590 µs after the kernel: kernels twice as fast save 50 of 720 µs.

    Without the rule the stream would go on at once.
    """
    rows = [call(0, 4, 1), kernel(10, 100, 1), call(5, 704, 2, name="cudaMemcpyAsync")]
    rows += [copy(700, 5, 2, "DtoH (Device -> Pageable)")]
    recording = trace(steps(STEPS, 720, rows))

    assert step_ms(recording, 0.5) == pytest.approx(0.670, abs=0.001)
    assert step_ms(recording, 0.5, untraced_waits=False) == pytest.approx(0.080, abs=0.001)


def queued_recording() -> Trace:
    """1,500 kernels of 100 µs on stream 7, then 120 ms on stream 8: a launch blocks at 1,023."""
    rows: list[Row] = []
    now = 0.0
    for number in range(1_500):
        done = max(now + 1, 10 + 100 * (number - 1_023) + 1)
        rows += [call(now, done - now, number), kernel(10 + 100 * number, 100, number)]
        now = done
    rows += [call(now, 1, 1_500), kernel(now + 10, 120_000, 1_500, stream=8, name="long")]
    end = now + 10 + 120_000
    return trace(steps(3, end + 10, [*rows, sync(now + 1, end + 10)]))


def test_host_runs_at_most_1023_launches_ahead() -> None:
    """The launch of the long kernel queues behind 1,023 others, else it would start at once.

    It starts at 47.6 ms and lasts 120 ms. Without the queue the 1,500 others bind: 150.02 ms.
    """
    recording = queued_recording()

    assert step_ms(recording) == pytest.approx(167.632, abs=0.002)
    assert step_ms(recording, launch_queue=False) == pytest.approx(150.02, abs=0.002)


def test_launch_takes_effect_from_the_start_of_its_call() -> None:
    """The call takes 50 µs, its kernel starts after 10. Kernels twice as long: 0.3 ms, not 0.35."""
    rows = [call(0, 50, 1), kernel(10, 100, 1), sync(50, 120)]
    recording = trace(steps(STEPS, 200, rows))

    assert step_ms(recording, 2) == 0.3
    assert step_ms(recording, 2, launch_from_start=False) == 0.35


def test_kernels_keep_the_gap_between_them() -> None:
    """Ten kernels of 20 µs, 2 µs apart. Doubled: 418 µs with gaps, 400 without; 52 besides."""
    rows = [call(2 * number, 1, number) for number in range(10)]
    rows += [kernel(10 + 22 * number, 20, number) for number in range(10)]
    recording = trace(steps(STEPS, 270, [*rows, sync(20, 238)]))

    assert step_ms(recording, 2) == 0.470
    assert step_ms(recording, 2, kernel_gap=False) == 0.452


WAITING_STREAMS = (
    call(0, 5, 1),
    call(5, 2, 2, name="cudaEventRecord"),
    call(10, 2, 3, name="cudaStreamWaitEvent"),
    call(12, 5, 4),
    kernel(10, 500, 1),
    kernel(510, 400, 4, stream=8),
    sync(20, 920),
)


def test_stream_waits_for_the_event_that_the_record_names() -> None:
    """Stream 8 waits for the kernel before the event on stream 7, else both would overlap."""
    record = {
        **kernel(10, 0, 3),
        "kind": "sync",
        "name": "Stream Wait Event",
        "stream": 8,
        "wait_stream": 7,
        "wait_event": 2,
    }
    rows = after_small_kernels([*WAITING_STREAMS, record])
    recording = trace(steps(STEPS, 1_060, rows))
    edges = build(recording).edges

    assert step_ms(recording) == 1.06
    assert step_ms(recording, event_edges=False) == 0.66
    assert set(edges["rule"][edges["kind"] == "event"]) == {"recorded"}


def test_stream_waits_for_what_the_host_launched_before() -> None:
    """Without a record the wait is for the last kernel launched before it on the other stream."""
    recording = trace(steps(STEPS, 1_060, after_small_kernels(list(WAITING_STREAMS))))
    edges = build(recording).edges

    assert step_ms(recording) == 1.06
    assert step_ms(recording, event_edges=False) == 0.66
    assert set(edges["rule"][edges["kind"] == "event"]) == {"inferred"}


def test_branch_of_a_graph_waits_for_the_kernel_that_ends_before_it() -> None:
    """Its 180 µs follow the eighth of nine kernels on the other stream: twice as fast, 0.514 ms.

    Without the rule the branch begins with its graph, and the nine kernels alone take 0.4735.
    """
    rows = [call(0, 10, 1, name="cudaGraphLaunch")]
    rows += [kernel(10 + 100 * n, 99, 1, name=f"k{n}") for n in range(9)]
    rows += [kernel(810, 180, 1, name="side", stream=20), sync(10, 995)]
    recording = trace(steps(STEPS, 1_000, rows))

    assert step_ms(recording) == pytest.approx(1.0, abs=0.001)
    assert step_ms(recording, 0.5) == pytest.approx(0.514)
    assert step_ms(recording, 0.5, graph_branches=False) == pytest.approx(0.4735)


def test_main_thread_waits_for_the_backward_thread() -> None:
    """The pause of the main thread is a join: 3 times as fast kernels shorten it by 400 µs."""
    rows = [
        op("aten::conv2d", 0, 100),
        call(110, 10, 1, thread=2),
        kernel(120, 600, 1),
        sync(120, 730, thread=2),
        op("aten::add_", 740, 60),
    ]
    recording = trace(steps(STEPS, 800, rows))

    assert step_ms(recording, 1 / 3) == 0.4
    assert step_ms(recording, 1 / 3, fork_join=False) == 0.8


def loader_thread_recording() -> Trace:
    """Return steps of 510 µs; a loader thread takes 900 µs per batch, once 400."""
    rows: list[Row] = []
    at = 0
    for number in range(10):
        length = 400 if number == 5 else 900
        third = length // 3 - 10
        for place, stage in enumerate(("CPU", "Mixed", "GPU")):
            name = f"[DALI][Executor] Run{stage}"
            rows.append(note(name, at + place * (third + 10), third, thread=9))
        rows.append(note(f"ProfilerStep#{number}", at, 510))
        rows.append(op("aten::conv2d", at, 510))
        at += max(510, length)
    return trace(rows)


def test_step_waits_for_the_loader_thread() -> None:
    """Loading twice as fast takes at most 465 µs, hand-overs included: the step binds with 510.

    As recorded, 5 of 6 steps wait: 835 µs on average. Uncoupled, the pauses stay as they were.
    """
    recording = loader_thread_recording()
    answers = []
    for rules in (Rules(), Rules(loader_edges=False)):
        graph = build(recording, rules=rules)
        loader = graph.lanes["role"].to_numpy(object)[graph.tasks["lane"]] == "loader"
        work = graph.tasks["work_ns"]
        faster = replace(graph, tasks=graph.tasks.assign(work_ns=work.where(~loader, work // 2)))
        answers.append([replay(each).step_ns / 1e6 for each in (graph, faster)])

    assert answers == [[0.835, 0.51], [0.835, 0.835]]


def fetching_recording() -> Trace:
    """Every step waits 6 ms for worker processes, then computes for 4 ms."""
    rows = []
    for number in range(9):
        at = 10_000 * number
        rows.append(note(f"ProfilerStep#{number}", at, 10_000))
        rows.append(op(MULTI_FETCH, at, 6_000))
        rows.append(op("aten::conv2d", at + 6_000, 4_000))
    return trace(rows)


@pytest.mark.parametrize("source", ["fetch", "gap"])
def test_slower_compute_hides_behind_the_loader(source: str) -> None:
    """Batches come every 10 ms. Computing for 8 ms instead of 4 still fits between them.

    The wait is seen inside the fetch, or as the idle time between two step ranges; at most 2 ms
    of it count as the fetch's own work. Counted as work the step would be 14 ms long.
    """
    recording = fetching_recording() if source == "fetch" else gap_recording()
    answers = []
    for rules in (Rules(), Rules(loader_edges=False)):
        graph = build(recording, rules=rules)
        compute = (graph.tasks["name"] == "aten::conv2d").to_numpy()
        work = graph.tasks["work_ns"].to_numpy()
        slower = graph.tasks.assign(work_ns=np.where(compute, 2 * work, work))
        answers.append(round(replay(replace(graph, tasks=slower)).step_ns / 1e6, 1))

    assert answers == [10.0, 14.0]


def burst_recording(waits: list[int]) -> Trace:
    """Return steps that compute for 4 ms after a call of next() that waits so long, in ms."""
    rows = []
    at = 0
    for number, wait in enumerate(waits):
        took = 150 + 1_000 * wait
        rows.append(note(f"ProfilerStep#{number + 7}", at, took + 4_000))
        rows += [op(MULTI_FETCH, at, took), op("aten::conv2d", at + took, 4_000)]
        at += took + 4_000
    return trace(rows)


@pytest.mark.parametrize(
    ("waits", "off_ms"), [([0, 0, 8, 0], 8.15), ([0, 8, 0, 0, 0, 8, 0], 6.15)], ids=["one", "two"]
)
def test_workers_deliver_in_bursts(waits: list[int], off_ms: float) -> None:
    """Four workers deliver together, every 24.6 ms: a step takes 6.15, however fast it computes.

    The recording holds one burst, or two but more steps than from one to the next. Without the rule
    a wait is work, and computing twice as fast saves 2 ms a step.
    """
    recording = burst_recording(waits)
    answers = []
    for rules in (Rules(), Rules(loader_edges=False)):
        graph = build(recording, rules=rules)
        compute = (graph.tasks["name"] == "aten::conv2d").to_numpy()
        work = graph.tasks["work_ns"].to_numpy()
        faster = graph.tasks.assign(work_ns=np.where(compute, work // 2, work))
        answers.append(
            [round(replay(each).step_ns / 1e6, 2) for each in (graph, replace(graph, tasks=faster))]
        )

    assert answers == [[6.15, 6.15], [off_ms, off_ms - 2]]


def gap_recording() -> Trace:
    """Step ranges of 4 ms with pauses of 6 ms."""
    rows = []
    for number in range(9):
        at = 10_000 * number
        rows.append(note(f"step {number}", at, 4_000))
        rows.append(op("aten::conv2d", at, 4_000))
    return trace(rows)


def test_blocking_download_holds_the_lock_of_the_driver() -> None:
    """Thread 2 cannot launch while thread 1 waits in a download; its kernel comes after.

    Kernels twice as fast: 300 µs, then 100 µs. Without the lock the second hides in the first.
    """
    rows = [
        *(call(start, 5, start) for start in (0, 5, 10)),
        kernel(10, 600, 0),
        kernel(610, 1, 5),
        kernel(611, 1, 10),
        call(20, 612, 20, name="cudaMemcpyAsync"),
        copy(612, 10, 20, "DtoH (Device -> Pageable)", bytes=4.0),
        call(120, 515, 30, thread=2),
        kernel(645, 200, 30, stream=8),
        sync(640, 855),
    ]
    recording = trace(steps(STEPS, 1_000, after_small_kernels(rows)))

    assert step_ms(recording) == pytest.approx(1.0, abs=0.02)
    assert step_ms(recording, 1 / 2) == pytest.approx(0.6, abs=0.02)
    assert step_ms(recording, 1 / 2, driver_lock=False) == pytest.approx(0.5, abs=0.02)


def test_saturating_kernel_keeps_other_streams_out() -> None:
    """20 blocks wait for a kernel that fills all 108 multiprocessors: 600 µs, not 500."""
    shape: Row = {"block_threads": 256, "blocks_per_sm": 4.0}
    rows = [
        call(0, 5, 1),
        call(5, 5, 2),
        kernel(10, 500, 1, blocks=1_000, **shape),
        kernel(510, 100, 2, stream=8, blocks=20, **shape),
        sync(10, 620),
    ]
    recording = trace(steps(STEPS, 760, after_small_kernels(rows)))

    assert step_ms(recording) == 0.76
    assert step_ms(recording, sm_contention=False) == 0.66


def test_copies_of_one_direction_take_turns() -> None:
    """Two streams upload 500 µs each from pinned memory: together 1 ms, after 1 ms of others."""
    upload = "HtoD (Pinned -> Device)"
    rows = [
        *(call(at, 5, at, name="cudaMemcpyAsync") for at in (0, 500, 1_000, 1_005)),
        *(copy(at + 10, 400, at, upload, bytes=5e6) for at in (0, 500)),
        copy(1_010, 500, 1_000, upload, bytes=6e6),
        copy(1_510, 500, 1_005, upload, bytes=6e6, stream=8),
        sync(1_010, 2_020),
    ]
    recording = trace(steps(STEPS, 2_080, rows))

    assert step_ms(recording) == 2.08
    assert step_ms(recording, copy_engines=False) == 1.585


def test_cost_of_the_profiler_is_taken_out() -> None:
    """100 operators of 8 µs with pauses of 2 µs; without the profiler the step took 0.9 ms."""
    rows = [op("aten::add", 10 * number, 8) for number in range(100)]
    recording = trace(steps(STEPS, 1_000, rows), unprofiled_step_ns=(900_000,) * 5)

    assert step_ms(recording) == pytest.approx(0.9, abs=0.001)
    assert step_ms(recording, deflate=False) == 1.0


def test_scaled_changes_kernels_only() -> None:
    """The helper of these tests leaves the host alone."""
    graph = build(trace(steps(STEPS, 1_000, [call(0, 10, 1), kernel(10, 900, 1)])))

    assert scaled(graph, 2).tasks["work_ns"].tolist()[-1] == 1_800_000
    assert scaled(graph, 2, "launch").tasks["work_ns"].tolist()[1] == 20_000


@pytest.mark.parametrize(
    ("launching", "waiting"),
    [
        ("musaLaunchKernel", "musaDeviceSynchronize"),
        ("urEnqueueKernelLaunch", "urQueueFinish"),
        ("zeCommandListAppendLaunchKernel", "zeCommandQueueSynchronize"),
        ("aclrtLaunchKernel", "aclrtSynchronizeStream"),
    ],
)
def test_runtimes_of_other_makers_wait(launching: str, waiting: str) -> None:
    """As in the first rule: 3 times as fast, the step shrinks from 1 to 0.4 ms."""
    rows = [call(0, 10, 1, name=launching), kernel(10, 900, 1), sync(10, 920, name=waiting)]
    recording = trace(steps(STEPS, 1_000, rows))

    assert step_ms(recording) == 1.0
    assert step_ms(recording, 1 / 3) == 0.4
    assert step_ms(recording, 1 / 3, split_waiting=False) == 1.0
