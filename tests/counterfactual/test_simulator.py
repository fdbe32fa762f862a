"""The simulator against timelines worked out by hand, in ns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.counterfactual.program import (
    Backward,
    Collective,
    Copy,
    DeviceIdle,
    GraphLaunch,
    HostWork,
    Launch,
    Loader,
    Machine,
    NextBatch,
    Node,
    RecordEvent,
    SyncDevice,
    SyncEvent,
    SyncStream,
    WaitEvent,
    item,
    program,
)
from tests.counterfactual.runtime import AUTOGRAD
from tests.counterfactual.simulate import simulate

if TYPE_CHECKING:
    from tests.counterfactual.program import Program
    from tests.counterfactual.simulate import Run

MACHINE = Machine(
    launch_ns=10,
    latency_ns=15,
    gap_ns=2,
    event_call_ns=3,
    event_lag_ns=5,
    sync_call_ns=4,
    sync_lag_ns=7,
    copy_call_ns=10,
    copy_lag_ns=6,
    copy_head_ns=80,
    copy_tail_ns=50,
    small_copy=1_000,
    stage_bytes_per_us=10_000,
    graph_launch_ns=30,
    graph_latency_ns=20,
    graph_gap_ns=1,
    fork_ns=20,
    join_ns=15,
    between_steps_ns=0,
    queue=2,
)


def run(asked: Program, steps: int = 1) -> Run:
    """Run a few steps and keep everything."""
    return simulate(asked, steps, recorded=range(steps))


def tasks(of: Run, rank: int = 0) -> list[tuple[int, int]]:
    """Return start and end of the device's tasks, in the order of their launches."""
    return [(task.start, task.end) for task in of.hosts[rank].tasks]


def calls(of: Run, rank: int = 0) -> list[tuple[int, int]]:
    """Return start and end of all calls."""
    return [(call.start, call.end) for call in of.hosts[rank].calls]


def test_stream_works_in_order() -> None:
    """A kernel starts a latency after its call began, or a gap after the one before."""
    ran = run(program(Launch("a", 100), Launch("b", 100), machine=MACHINE))

    assert calls(ran) == [(0, 10), (10, 20)]
    assert tasks(ran) == [(15, 115), (117, 217)]


def test_full_queue_blocks_the_call() -> None:
    """With room for two, the fourth launch waits for the start of the second."""
    ran = run(program(*[Launch("a", 100)] * 5, machine=MACHINE))

    assert calls(ran) == [(0, 10), (10, 20), (20, 30), (30, 127), (127, 229)]
    assert [start for start, _ in tasks(ran)] == [15, 117, 219, 321, 423]


@pytest.mark.parametrize("wait", [SyncStream(), SyncDevice()])
def test_sync_returns_a_lag_after_the_last_kernel(wait: SyncStream | SyncDevice) -> None:
    """What is done already is waited for no longer than the call takes."""
    ran = run(program(Launch("a", 100), wait, wait, machine=MACHINE))

    assert calls(ran) == [(0, 10), (10, 122), (122, 126)]


def test_event_sync_waits_for_the_step_before() -> None:
    """Kernels of this step are queued by then, and not waited for."""
    ran = run(program(Launch("a", 100), SyncEvent(1), RecordEvent(1), machine=MACHINE), steps=2)

    assert calls(ran) == [(0, 10), (10, 14), (14, 17), (17, 27), (27, 122), (122, 125)]
    assert tasks(ran) == [(15, 115), (117, 217)]


def test_event_holds_another_stream_back() -> None:
    """The second stream starts a lag after the mark; small kernels run beside each other."""
    ran = run(
        program(
            Launch("a", 100, fills=False),
            RecordEvent(1),
            WaitEvent(1, 9),
            Launch("b", 50, 9, fills=False),
            Launch("c", 50, fills=False),
            machine=MACHINE,
        )
    )

    assert tasks(ran) == [(15, 115), (120, 170), (117, 167)]


def test_filling_kernels_share_the_device() -> None:
    """On two streams as on one, the one that was ready first runs first."""
    ran = run(program(Launch("a", 100), Launch("b", 50, 9), Launch("c", 10), machine=MACHINE))

    assert tasks(ran) == [(15, 115), (115, 165), (165, 175)]


def test_pageable_download_waits_for_its_end() -> None:
    """`.item()` comes back a lag after the four bytes, and its sync finds nothing left to do."""
    copy = Copy("DtoH", 4, 20, pageable=True)
    ran = run(program(Launch("a", 100), copy, SyncStream(), machine=MACHINE))

    assert tasks(ran) == [(15, 115), (117, 137)]
    assert calls(ran) == [(0, 10), (10, 143), (143, 147)]


def test_item_is_a_download_and_a_sync() -> None:
    """Its operators enclose both calls."""
    ran = run(program(item(), machine=MACHINE))

    assert [call.name for call in ran.hosts[0].calls] == [
        "cudaMemcpyAsync",
        "cudaStreamSynchronize",
    ]
    assert [span.name for span in ran.hosts[0].spans] == ["aten::_local_scalar_dense", "aten::item"]


@pytest.mark.parametrize(
    ("copy", "call", "task"),
    [
        (Copy("HtoD", 9_000, 200, pageable=True), (0, 230), (80, 280)),
        (Copy("HtoD", 500, 200, pageable=True), (0, 60), (60, 260)),
        (Copy("HtoD", 9_000, 200, pageable=False), (0, 10), (15, 215)),
    ],
    ids=["large pageable", "small pageable", "pinned"],
)
def test_uploads(copy: Copy, call: tuple[int, int], task: tuple[int, int]) -> None:
    """A large one returns during its last chunk, a small one once staged, a pinned one at once."""
    ran = run(program(copy, machine=MACHINE))

    assert (calls(ran), tasks(ran)) == ([call], [task])


def test_copy_engine_serves_who_is_ready() -> None:
    """An upload launched later goes first while an event holds the other one back."""
    ran = run(
        program(
            Launch("a", 500),
            RecordEvent(1),
            WaitEvent(1, 20),
            Copy("HtoD", 9_000, 100, pageable=False, stream=20),
            Copy("HtoD", 9_000, 100, pageable=False, stream=21),
            machine=MACHINE,
        )
    )

    assert tasks(ran) == [(15, 515), (520, 620), (41, 141)]


def test_loader_prefetches() -> None:
    """Two workers, one batch ahead each: a batch is begun once the one before last is taken."""
    ran = run(
        program(NextBatch(), HostWork(20), machine=MACHINE, loader=Loader(2, 100, 10, 1)), steps=4
    )

    spans = [(span.start, span.end) for span in ran.hosts[0].spans]
    assert spans == [(0, 110), (130, 140), (160, 220), (240, 250)]


def test_loader_without_workers() -> None:
    """The main thread makes the batch itself, and hands nothing over."""
    ran = run(program(NextBatch(), machine=MACHINE, loader=Loader(0, 100, 10)), steps=2)

    assert [(span.start, span.end) for span in ran.hosts[0].spans] == [(0, 100), (100, 200)]


def test_graph_branch_joins_again() -> None:
    """B and C follow A side by side; D waits for B; the stream goes on after the last."""
    nodes = (Node("A", 100), Node("B", 50, 1, (0,)), Node("C", 30), Node("D", 10, 0, (1,)))
    ran = run(program(GraphLaunch(nodes), Launch("e", 5), machine=MACHINE))

    assert tasks(ran) == [(20, 120), (121, 171), (121, 151), (172, 182), (184, 189)]
    assert calls(ran) == [(0, 30), (30, 40)]
    assert len({task.correlation for task in ran.hosts[0].tasks}) == 2


def test_collective_starts_when_all_ranks_have_come() -> None:
    """The first rank's kernel runs from its own arrival; both end together."""
    both = program(Launch("a", 100), Collective(4, 10, 40, 7), machine=MACHINE, slowness=(1.0, 2.0))
    ran = run(both)

    assert tasks(ran, 0) == [(15, 115), (117, 267)]
    assert tasks(ran, 1) == [(15, 215), (217, 267)]


def test_main_thread_waits_for_backward() -> None:
    """Its calls are the autograd thread's, between fork and join."""
    ran = run(program(Backward((Launch("a", 100),)), Launch("b", 100), machine=MACHINE))

    threads = [(call.thread, call.start, call.end) for call in ran.hosts[0].calls]
    assert threads == [(AUTOGRAD, 20, 30), (0, 45, 55)]


def test_device_stands_still() -> None:
    """The next kernel comes after the idle time, although it was launched long before."""
    ran = run(program(Launch("a", 100), DeviceIdle(50), Launch("b", 100), machine=MACHINE))

    assert tasks(ran) == [(15, 115), (167, 267)]


def test_same_program_gives_same_run() -> None:
    """Jitter is drawn from the seed."""
    asked = program(*[Launch("a", 1_000)] * 9, host_jitter=0.1, device_jitter=0.1, seed=3)

    assert tasks(run(asked, 3)) == tasks(run(asked, 3))


def test_period_is_the_time_from_completion_to_completion() -> None:
    """A host that runs ahead into an empty queue makes no step faster."""
    asked = program(*[Launch("a", 100_000)] * 3)

    assert simulate(asked).period_ns() == 3 * 101_200
