"""Lowering: symbolic waits and the launch queue become edges, within or across repetitions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from foretrace.graph.literal import literal
from foretrace.graph.model import EDGE_KINDS, Platform, Rules
from foretrace.replaying.engine.program import END_END, END_START, START_START
from foretrace.replaying.lower import lower

if TYPE_CHECKING:
    from foretrace.graph.model import Graph
    from foretrace.replaying.engine.program import Program

LAUNCH = ("cudaLaunchKernel", "launch", 0, 5, None)
GEMM = ("gemm", "kernel", 1, 10, None)
SYNC = ("cudaDeviceSynchronize", "sync", 0, 5, None)


def job(*, wait: str = "device", wait_lane: int = -1, depth: int | None = None) -> Graph:
    """Return two launches (0, 2), their kernels (1, 3), and a sync (4)."""
    return literal(
        [LAUNCH, GEMM, LAUNCH, GEMM, SYNC],
        [(0, 1, "launch", 6), (2, 3, "launch", 6)],
        columns={
            "start_ns": [0, 6, 5, 16, 10],
            "wait": ["none"] * 4 + [wait],
            "wait_lane": [-1] * 4 + [wait_lane],
            "return_ns": [0] * 4 + [9],
        },
        platform=Platform(queue_depth=depth),
        wrap=True,
    )


def edges_of(program: Program, kind: str) -> list[tuple[int, int, int, int, int]]:
    """Return source, destination, shift, lag and anchor of the edges of one kind."""
    columns = (program.src, program.dst, program.shift, program.lag_ns, program.anchor)
    chosen = program.kind == list(EDGE_KINDS).index(kind)
    return sorted(zip(*(column[chosen].tolist() for column in columns), strict=True))


def test_tasks_and_edges_are_those_of_the_graph() -> None:
    """Rows are tasks; edges over the seam lead into the next repetition."""
    program = lower(job(), 2)

    assert (program.tasks, program.repetitions, program.moments) == (5, 2, 20)
    assert program.work_ns.tolist() == [5, 10, 5, 10, 5]
    assert program.lane.tolist() == [0, 1, 0, 1, 0]
    assert edges_of(program, "stream") == [(1, 3, 0, 0, END_START), (3, 1, 1, 0, END_START)]
    assert edges_of(program, "launch") == [(0, 1, 0, 6, START_START), (2, 3, 0, 6, START_START)]


def test_device_sync_waits_for_the_last_launch_before_it() -> None:
    """Kernel 3, in the same repetition."""
    assert edges_of(lower(job(), 2), "return") == [(3, 4, 0, 9, END_END)]


def test_stream_sync_waits_for_its_stream() -> None:
    """Nothing was ever launched on a stream that it names in vain."""
    assert edges_of(lower(job(wait="stream", wait_lane=1), 1), "return") == [(3, 4, 0, 9, END_END)]
    assert edges_of(lower(job(wait="stream", wait_lane=0), 1), "return") == []


def test_sync_before_all_launches_waits_for_the_repetition_before() -> None:
    """The last kernel of the window was launched one window earlier."""
    graph = job()
    graph = replace(graph, tasks=graph.tasks.assign(start_ns=[20, 26, 25, 36, 10]))

    assert edges_of(lower(graph, 2), "return") == [(3, 4, 1, 9, END_END)]


def test_launch_at_the_same_moment_counts_by_its_row() -> None:
    """Launch 2 and sync 4 begin together: the lower row is earlier."""
    graph = job()
    graph = replace(graph, tasks=graph.tasks.assign(start_ns=[0, 6, 10, 16, 10]))

    assert edges_of(lower(graph, 1), "return") == [(3, 4, 0, 9, END_END)]


def test_inserted_kernel_is_waited_for() -> None:
    """Waits are symbolic: with one more launch before it, the sync waits for that one."""
    tasks = [LAUNCH, GEMM, LAUNCH, GEMM, SYNC, LAUNCH, GEMM]
    graph = literal(
        tasks,
        [(0, 1, "launch"), (2, 3, "launch"), (5, 6, "launch")],
        columns={
            "start_ns": [0, 6, 5, 16, 10, 7, 8],
            "wait": ["none"] * 4 + ["device", "none", "none"],
        },
    )

    assert edges_of(lower(graph, 1), "return") == [(6, 4, 0, 0, END_END)]


def test_blocking_call_returns_after_its_own_work() -> None:
    """An upload's lag is negative: the call returns before its copy ends."""
    graph = literal(
        [("cudaMemcpyAsync", "launch", 0, 5, None), ("Memcpy HtoD", "memcpy", 1, 400, None)],
        [(0, 1, "launch", 6)],
        columns={"wait": ["own", "none"], "return_ns": [-60, 0]},
    )

    assert edges_of(lower(graph, 1), "return") == [(1, 0, 0, -60, END_END)]


def test_launch_waits_for_the_one_a_queue_length_before() -> None:
    """Depth 1: each launch waits for the start of the kernel before; the first over the seam."""
    program = lower(job(depth=1), 2)

    assert edges_of(program, "queue") == [(1, 2, 0, 0, START_START), (3, 0, 1, 0, START_START)]


def test_queue_longer_than_the_window_reaches_back_several() -> None:
    """Depth 3 with two launches: launch 1 waits for kernel 0 two repetitions earlier."""
    program = lower(job(depth=3), 3)

    assert edges_of(program, "queue") == [(1, 2, 1, 0, START_START), (3, 0, 2, 0, START_START)]


def test_graph_takes_one_place_of_the_queue() -> None:
    """Call 0 launches kernels 1 and 2: with depth 1, call 3 waits for the first of them only."""
    graph = literal(
        [LAUNCH, GEMM, GEMM, LAUNCH, GEMM],
        [(0, 1, "launch"), (0, 2, "launch"), (3, 4, "launch")],
        columns={"start_ns": [0, 6, 16, 5, 26]},
        platform=Platform(queue_depth=1),
    )

    assert edges_of(lower(graph, 2), "queue") == [
        (1, 3, 0, 0, START_START),
        (4, 0, 1, 0, START_START),
    ]


def test_queue_rule_off() -> None:
    """Launches run ahead without limit."""
    graph = replace(job(depth=1), rules=Rules(launch_queue=False))

    assert edges_of(lower(graph, 2), "queue") == []


def test_meeting_is_tied_to_starts_and_ends() -> None:
    """The transfer begins when both collectives have begun; they end when it has ended."""
    names = (("reduce", 0), ("reduce", 1), ("transfer", 2))
    graph = literal(
        [(name, "collective", lane, 10, None) for name, lane in names],
        [(0, 2, "collective"), (1, 2, "collective"), (2, 0, "return"), (2, 1, "return")],
    )
    program = lower(graph, 1)

    assert edges_of(program, "collective") == [(0, 2, 0, 0, START_START), (1, 2, 0, 0, START_START)]
    assert edges_of(program, "return") == [(2, 0, 0, 0, END_END), (2, 1, 0, 0, END_END)]
