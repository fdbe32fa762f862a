"""From a trace to tables: what is in the window, where it stands, and what is said about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from foretrace.errors import GraphError
from foretrace.graph.build import build
from foretrace.replaying.replay import replay
from foretrace.tracer.trace import Device
from tests.support.recordings.events import (
    META,
    MULTI_FETCH,
    Row,
    call,
    copy,
    kernel,
    later,
    microseconds,
    note,
    op,
    steps,
    sync,
    trace,
)

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def job() -> list[Row]:
    """Return one step of 1 ms: an operator with a kernel, a gap of 880 µs, and a sync."""
    return [op("aten::mm", 0, 20), call(5, 10, 1), kernel(15, 900, 1), sync(20, 920)]


def texts(graph: Graph, column: str) -> list[str]:
    """Return a task column as text."""
    return graph.tasks[column].astype(object).fillna("-").tolist()


def test_tasks_of_a_window() -> None:
    """Host tasks of both steps, then their device tasks; markers begin the steps."""
    graph = build(trace(steps(2, 1_000, job())))
    tasks = graph.tasks

    assert graph.steps == 1
    assert texts(graph, "kind") == ["host", "host", "launch", "host", "sync", "kernel"]
    assert texts(graph, "name")[:3] == ["ProfilerStep#0", "aten::mm", "cudaLaunchKernel"]
    assert microseconds(tasks["work_ns"]) == [0, 5, 10, 5, 5, 900]
    assert tasks["lane"].tolist() == [0, 0, 0, 0, 0, 1]
    assert tasks["operator"].tolist() == [-1, 0, 0, 0, -1, 0]
    assert texts(graph, "wait") == ["none"] * 4 + ["device", "none"]
    assert tasks["lock"].tolist() == [0, 0, 1, 0, 0, 0]
    assert texts(graph, "cost") == ["recorded"] * 4 + ["unblocked", "recorded"]
    assert graph.operators["name"].tolist() == ["aten::mm"]


def test_edges_of_a_window() -> None:
    """Order on the lanes, closed over the seam; one launch from the start of its call."""
    graph = build(trace(steps(2, 1_000, job())))
    edges = graph.edges

    assert list(zip(edges["src"], edges["dst"], edges["kind"], edges["shift"], strict=True)) == [
        (0, 1, "thread", 0),
        (1, 2, "thread", 0),
        (2, 3, "thread", 0),
        (3, 4, "thread", 0),
        (4, 0, "thread", 1),
        (5, 5, "stream", 1),
        (2, 5, "launch", 0),
    ]
    assert microseconds(edges["lag_ns"]) == [0, 0, 0, 0, 80, 0, 10]


def test_steps_are_numbered_within_the_window() -> None:
    """Of 7 markers 4 steps remain, on the host and on the device."""
    graph = build(trace(steps(7, 1_000, job())))
    tasks = graph.tasks

    assert tasks["step"][tasks["kind"] == "kernel"].tolist() == [0, 1, 2, 3]
    assert graph.operators["step"].tolist() == [0, 1, 2, 3]


def test_lanes_have_roles() -> None:
    """By the steps' thread, by turns taken, and by what a stream spends most time on."""
    rows = [
        op("aten::mm", 0, 20),
        call(30, 5, 1, thread=2),
        call(40, 5, 2, thread=2),
        call(50, 5, 3, thread=2),
        kernel(60, 50, 1),
        kernel(70, 50, 2, stream=8, name=NCCL),
        copy(80, 30, 3, "HtoD (Pinned -> Device)", stream=9),
        op("aten::add_", 300, 20),
    ]
    lanes = build(trace(steps(3, 400, rows))).lanes

    assert lanes["kind"].tolist() == ["thread"] * 2 + ["stream"] * 3
    assert lanes["id"].tolist() == [1, 2, 7, 8, 9]
    assert lanes["role"].tolist() == ["main", "autograd", "compute", "communication", "copy"]
    assert lanes["device"].tolist() == [-1, -1, 0, 0, 0]


def test_device_work_belongs_to_its_launch() -> None:
    """Phase, module and operator come from the call; communication is a phase of its own."""
    rows = [
        note("##net", 0, 40),
        op("aten::mm", 0, 40),
        call(5, 5, 1),
        kernel(20, 10, 1),
        call(20, 5, 2),
        kernel(30, 10, 2, name=NCCL),
    ]
    graph = build(trace(steps(3, 100, rows)))
    device = graph.tasks["kind"].isin(["kernel", "collective"])

    assert graph.tasks[device][["phase", "module"]].astype(object).to_numpy().tolist() == [
        ["forward", "net"],
        ["communication", "net"],
        ["forward", "net"],
        ["communication", "net"],
    ]


def test_fill_is_the_share_of_the_device_that_the_grid_takes() -> None:
    """432 blocks of 4 per multiprocessor fill 108; unknown residency is bounded by threads."""
    shapes = ((432, 256, 4.0), (216, 1_024, None), (108, 1, None), (0, 256, 4.0))
    rows: list[Row] = []
    for number, (blocks, threads, resident) in enumerate(shapes):
        more: Row = {} if resident is None else {"blocks_per_sm": resident}
        rows.append(call(10 * number, 5, number))
        rows.append(
            kernel(10 * number + 8, 1, number, blocks=blocks, block_threads=threads, **more)
        )
    graph = build(trace(steps(2, 100, rows)))
    fill = graph.tasks["fill"][graph.tasks["kind"] == "kernel"]

    assert fill.fillna(-1).tolist() == [1.0, 1.0, 1 / 32, -1]


def test_fill_is_unknown_where_the_device_is() -> None:
    """Without the number of multiprocessors nothing saturates."""
    rows = [call(0, 5, 1), kernel(10, 5, 1, blocks=10_000, block_threads=256)]
    graph = build(trace(steps(2, 100, rows), devices=(Device(0, "some GPU"),)))

    assert graph.tasks["fill"].isna().all()


def test_kernels_that_share_a_full_device_count_once() -> None:
    """Both fill it and overlap by 40 µs; the second one's own work is the rest."""
    full: Row = {"blocks": 4_320, "block_threads": 256}
    rows = [
        call(0, 5, 1),
        call(5, 5, 2),
        kernel(10, 100, 1, **full),
        kernel(70, 100, 2, stream=8, **full),
    ]
    tasks = build(trace(steps(2, 300, rows))).tasks

    assert microseconds(tasks["work_ns"][tasks["kind"] == "kernel"]) == [100, 60]


def test_a_kernel_inside_another_is_not_free() -> None:
    """Both fill the device; what ran inside keeps its 20 µs."""
    full: Row = {"blocks": 4_320, "block_threads": 256}
    rows = [
        call(0, 5, 1),
        call(5, 5, 2),
        kernel(10, 100, 1, **full),
        kernel(70, 20, 2, stream=8, **full),
    ]
    tasks = build(trace(steps(2, 300, rows))).tasks

    assert microseconds(tasks["work_ns"][tasks["kind"] == "kernel"]) == [100, 20]


def test_device_work_without_a_launch_goes_with_its_neighbours() -> None:
    """Work of a lost call between two known ones stays, and a note says so."""
    rows = [call(0, 5, 1), kernel(10, 10, 1), kernel(20, 10, -1), call(8, 5, 2), kernel(30, 10, 2)]
    graph = build(trace(steps(2, 100, rows)))

    assert texts(graph, "kind").count("kernel") == 3
    assert graph.tasks["step"].tolist()[-2] == -1
    assert "1 device tasks in the window have no launch" in graph.notes[0]


def test_device_alone_is_a_graph() -> None:
    """A recording without its host replays its streams."""
    graph = build(trace([kernel(0, 10, 1), kernel(10, 10, 2)]))

    assert texts(graph, "kind") == ["kernel", "kernel"]
    assert replay(graph).step_ns == 20_000


def test_loads_are_tasks_of_their_own() -> None:
    """One per step that waited, on a lane of their own; the first one's work spans the seam."""
    rows = [op(MULTI_FETCH, 0, 6_000), op("aten::mm", 6_000, 4_000)]
    graph = build(trace(steps(4, 10_000, rows)))
    loads = graph.tasks[graph.tasks["kind"] == "load"]

    assert graph.lanes["kind"].tolist() == ["thread", "loader"]
    assert loads["name"].unique().tolist() == ["batch"]
    assert microseconds(loads["work_ns"]) == [10_000, 10_000]
    assert loads["step"].tolist() == [0, 1]
    assert "the loader was seen only by the waiting for it" in graph.notes[-1]


def test_other_busy_threads_are_left_out_and_named() -> None:
    """One helper works half of the time, launches nothing and takes no turns; one looks in."""
    rows = [op("a", 0, 600), op("help", 100, 500, thread=5), op("look", 100, 1, thread=6)]
    graph = build(trace(steps(3, 1_000, rows)))

    assert graph.lanes["id"].tolist() == [1]
    assert graph.notes == ("1 host threads neither train, load nor launch: left out",)


def test_notes_tell_what_was_assumed() -> None:
    """Overlaps on a stream, and a wait for something untraced."""
    rows = [
        call(0, 5, 1),
        call(5, 5, 2),
        kernel(10, 20, 1),
        kernel(20, 20, 2),
        sync(50, 900),
    ]
    notes = build(trace(steps(2, 1_000, rows))).notes

    assert notes == (
        "2 tasks overlap another of their stream: the overlap counts once",
        "2 synchronisations waited for something untraced: their length stays work",
    )


def test_thread_that_launches_most_is_the_main_one() -> None:
    """Without steps; without launches it is the one with most tasks."""
    rows = [op("a", 0, 5), op("b", 6, 5), call(10, 5, 1, thread=2), kernel(20, 5, 1)]

    assert build(trace(rows)).lanes["id"].tolist() == [2, 7]
    assert build(trace(rows[:2])).lanes["role"].tolist() == ["main"]


def test_step_pattern_bounds_the_steps() -> None:
    """The user's range wins."""
    rows = [note("mine", 100 * i, 5) for i in range(4)] + [op("a", 100 * i, 50) for i in range(4)]

    assert build(trace(rows), step_pattern="mine").measured_step_ns == 100_000


def test_empty_trace_is_refused() -> None:
    """The message names the file."""
    with pytest.raises(GraphError, match=r"tiny\.json: the trace is empty"):
        build(trace([]))


def test_trace_without_work_is_refused() -> None:
    """Annotations alone are nothing to replay."""
    with pytest.raises(GraphError, match="rank 0 has neither host nor device work"):
        build(trace([note("forward", 0, 10)]))


def test_ranks_are_built_apart() -> None:
    """Equal ids of two ranks do not meet."""
    rows = steps(3, 1_000, job())
    both = [*rows, *({**later(row, 10), "rank": 1} for row in rows)]
    graph = build(trace(both, ranks=(0, 1)))

    assert META.ranks == (0,)
    assert graph.lanes["rank"].tolist() == [0, 0, 1, 1]
    assert (graph.edges["kind"] == "launch").sum() == 4


def test_loader_thread_that_worked_before_the_window_only() -> None:
    """Its units prefetched during warm-up: nothing ties the later steps to it."""
    rows = steps(7, 1_000, [op("aten::mm", 0, 900)])
    rows += [note("[DALI][Executor] RunCPU", 1_000 * i, 100, thread=9) for i in range(2)]
    graph = build(trace(rows))

    assert set(graph.edges["kind"]) == {"thread"}
    assert graph.lanes["id"].tolist() == [1]


def test_operator_may_be_called_like_a_load() -> None:
    """The name "batch" is taken; loads share it."""
    rows = [op(MULTI_FETCH, 0, 6_000), op("batch", 6_000, 4_000)]
    graph = build(trace(steps(4, 10_000, rows)))

    assert texts(graph, "name").count("batch") == 4


def test_autograds_thread_is_never_the_main_one() -> None:
    """Without steps the thread with most launches is, unless it runs the backward pass."""
    node = "autograd::engine::evaluate_function: ReluBackward0"
    backward = [op(node, 100, 400, thread=2)]
    backward += [call(120 + 20 * i, 10, 10 + i, thread=2) for i in range(4)]
    forward = [op("aten::relu", 0, 50), call(5, 10, 1), op("aten::add_", 520, 50), call(530, 9, 2)]
    kernels = [kernel(40 + 100 * i, 90, c) for i, c in enumerate((1, 10, 11, 12, 13, 2))]

    graph = build(trace([*forward, *backward, *kernels]))

    assert graph.lanes[["id", "role"]].values.tolist()[:2] == [[1, "main"], [2, "autograd"]]
    assert set(graph.edges["kind"]) >= {"fork", "join"}
