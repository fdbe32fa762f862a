"""One recording with the times of another, group by group."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from foretrace.graph.literal import literal
from foretrace.graph.model import Graph, Platform
from foretrace.replaying.replay import replay
from foretrace.transforms.measured.exchange import GROUPS, exchange, match


def job(host: int, kernel: int, *, gap: int = 0, queue: int | None = None, **more: Any) -> Graph:
    """Return a step of one launch and its kernel, with an all-reduce after it."""
    tasks = [
        ("cudaLaunchKernel", "launch", 0, host, "forward"),
        ("gemm", "kernel", 1, kernel, "forward"),
        ("ncclAllReduce", "collective", 1, more.get("transfer", 4), "communication"),
    ]
    edges = [(0, 1, "launch", gap)]
    return literal(tasks, edges, wrap=True, platform=Platform(queue_depth=queue))


def works(graph: Graph) -> list[int]:
    """Return what the tasks of *graph* cost."""
    return [int(ns) for ns in graph.tasks["work_ns"]]


def test_each_group_is_exchanged_alone() -> None:
    """Kernels, host and transfers have their own times; latencies are lags."""
    pair = match(job(5, 10, gap=2), job(7, 20, gap=9, transfer=40, queue=64))

    assert works(exchange(pair, ["kernels"])) == [5, 20, 4]
    assert works(exchange(pair, ["host"])) == [7, 10, 4]
    assert works(exchange(pair, ["communication"])) == [5, 10, 40]
    late = exchange(pair, ["latencies"])
    assert works(late) == [5, 10, 4]
    assert 9 in late.edges["lag_ns"].tolist()
    assert late.platform.queue_depth == 64


def test_all_groups_together_are_the_other_recording() -> None:
    """Where both have the same tasks, nothing else is left."""
    one, other = job(5, 10, gap=2), job(30, 20, gap=9, transfer=40)

    changed = exchange(match(one, other), [*GROUPS])

    assert replay(changed).step_ns == replay(other).step_ns


def test_nothing_is_exchanged_unasked() -> None:
    """Without groups the replay is that of the recording."""
    one = job(5, 10)

    assert replay(exchange(match(one, job(30, 20)), [])).step_ns == replay(one).step_ns


def loading(fetch: int, batch: int | None) -> Graph:
    """Return a step that fetches a batch and works on it; workers make one in *batch* ns."""
    tasks = [("next", "host", 0, fetch, "load"), ("aten::mm", "host", 0, 100, "forward")]
    edges = []
    if batch is not None:
        tasks.append(("batch", "load", 1, batch, "load"))
        edges.append((2, 0, "data"))
    return literal(tasks, edges, wrap=True)


def test_batches_are_waited_for_as_in_the_other_recording() -> None:
    """Also where this one never waited, and no longer where only this one did."""
    quick, slow = loading(10, None), loading(10, 400)

    assert replay(quick).step_ns == 110
    assert replay(exchange(match(quick, slow), ["loader"])).step_ns == 400
    assert replay(exchange(match(slow, quick), ["loader"])).step_ns == 110


def test_loading_on_the_main_thread_comes_and_goes() -> None:
    """Operators that load stand in one recording alone: the fetch before them carries them."""
    fetch, work = ("next", "host", 0, 10, "load"), ("aten::mm", "host", 0, 100, "forward")
    worker = literal([fetch, work], wrap=True)
    alone = literal([fetch, ("aten::decode", "host", 0, 70, "load"), work], wrap=True)

    assert replay(exchange(match(worker, alone), ["loader"])).step_ns == 180
    assert replay(exchange(match(alone, worker), ["loader"])).step_ns == 110


def test_calls_wait_as_their_counterparts_do() -> None:
    """A synchronisation that waited for the stream waits no longer, and the other way round."""
    tasks = [
        ("cudaLaunchKernel", "launch", 0, 5, None),
        ("cudaStreamSynchronize", "sync", 0, 3, None),
        ("aten::mm", "host", 0, 20, None),
        ("gemm", "kernel", 1, 50, None),
    ]
    free = literal(tasks, [(0, 3, "launch")], wrap=True)
    columns = {"wait": ["none", "stream", "none", "none"], "wait_lane": [-1, 1, -1, -1]}
    waiting = replace(free, tasks=free.tasks.assign(**columns).astype({"wait": "category"}))

    assert replay(exchange(match(waiting, free), ["latencies"])).step_ns == replay(free).step_ns
    assert replay(exchange(match(free, waiting), ["latencies"])).step_ns == replay(waiting).step_ns
    assert replay(free).step_ns < replay(waiting).step_ns
