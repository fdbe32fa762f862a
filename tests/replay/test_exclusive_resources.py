"""What tasks of several lanes compete for, who occupies it, and who only waits."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from foretrace.graph.literal import literal
from foretrace.graph.model import Rules
from foretrace.replaying.lower import lower

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

UP, DOWN = "Memcpy HtoD (Pinned -> Device)", "Memcpy DtoH (Device -> Pageable)"


def contention(graph: Graph, **rules: bool) -> tuple[list[int], list[bool]]:
    """Return the resource of every task, and who holds it."""
    program = lower(replace(graph, rules=Rules(**rules)), 1)
    return program.resource.tolist(), program.holds.tolist()


def copies(*directions: str, columns: dict[str, Any] | None = None) -> Graph:
    """Return one copy per stream."""
    return literal(
        [(name, "memcpy", lane, 10, None) for lane, name in enumerate(directions)],
        columns=columns or {},
    )


def test_copies_of_one_direction_share_an_engine() -> None:
    """Uploads of two streams take turns; a download has an engine to itself."""
    graph = copies(UP, UP, DOWN)

    assert contention(graph) == ([0, 0, -1], [True, True, False])
    assert contention(graph, copy_engines=False) == ([-1, -1, -1], [False] * 3)


def test_each_direction_has_an_engine() -> None:
    """Downloads are counted first."""
    assert contention(copies(UP, DOWN, UP, DOWN))[0] == [1, 0, 1, 0]


def test_each_device_has_its_engines() -> None:
    """Lanes of two devices do not meet; nor do those of two ranks."""
    graph = copies(UP, UP, UP, UP)
    apart = graph.lanes.assign(device=[0, 0, 1, 1]).astype({"device": "int16"})
    ranks = graph.lanes.assign(rank=[0, 1, 0, 1]).astype({"rank": "int16"})

    assert contention(replace(graph, lanes=apart))[0] == [0, 0, 1, 1]
    assert contention(replace(graph, lanes=ranks))[0] == [0, 1, 0, 1]


def test_copies_of_one_stream_need_no_engine() -> None:
    """They take turns anyway."""
    graph = literal([(UP, "memcpy", 0, 10, None)] * 2)

    assert contention(graph)[0] == [-1, -1]


def test_saturating_kernel_is_waited_for_by_all() -> None:
    """It holds the device; small ones only let it pass; collectives have room of their own."""
    graph = literal(
        [
            ("gemm", "kernel", 0, 10, None),
            ("relu", "kernel", 1, 10, None),
            ("ncclKernel", "collective", 2, 10, None),
        ],
        columns={"fill": [2.0, 0.1, 3.0]},
    )

    assert contention(graph) == ([0, 0, -1], [True, False, False])
    assert contention(graph, sm_contention=False)[0] == [-1, -1, -1]


def test_stream_that_was_seen_to_run_beside_finds_room() -> None:
    """Its kernel starts 2 into the 10 of one that fills the device; the other one at its end."""
    columns = {"fill": [2.0, 0.1, 0.1], "start_ns": [0, 2, 10]}
    graph = literal(
        [(name, "kernel", n, 10, None) for n, name in enumerate("abc")], columns=columns
    )

    assert contention(graph) == ([0, -1, 0], [True, False, False])


def test_small_kernels_run_side_by_side() -> None:
    """Nobody fills the device, or it is not known."""
    small = literal(
        [("a", "kernel", 0, 10, None), ("b", "kernel", 1, 10, None)], columns={"fill": [0.9, 0.1]}
    )

    assert contention(small)[0] == [-1, -1]
    assert (
        contention(literal([("a", "kernel", 0, 9, None), ("b", "kernel", 1, 9, None)]))[0]
        == [-1] * 2
    )


def lock_job(**columns: Any) -> Graph:
    """Return a download (0) with its copy (1), and another thread's launch (2) with its kernel."""
    return literal(
        [
            ("cudaMemcpyAsync", "launch", 0, 5, None),
            (DOWN, "memcpy", 1, 10, None),
            ("cudaLaunchKernel", "launch", 2, 5, None),
            ("gemm", "kernel", 3, 10, None),
        ],
        [(0, 1, "launch", 6), (2, 3, "launch", 6)],
        columns={"wait": ["own", "none", "none", "none"], **columns},
    )


def test_blocking_download_holds_the_driver_lock() -> None:
    """An inserted call (lock −1) does as its kind does."""
    graph = lock_job()

    assert contention(graph) == ([0, -1, 0, -1], [True, False, False, False])
    assert contention(graph, driver_lock=False)[0] == [-1] * 4


def test_lock_as_recorded() -> None:
    """0 ignores it, 1 waits for it, 2 holds it, whatever the kind."""
    assert contention(lock_job(lock=[1, 0, 2, 0])) == ([0, -1, 0, -1], [False, False, True, False])
    assert contention(lock_job(lock=[2, 0, 0, 0]))[0] == [-1] * 4
    assert contention(lock_job(lock=[1, 0, 1, 0]))[0] == [-1] * 4


def test_download_that_does_not_block_holds_nothing() -> None:
    """Its call returns at once."""
    assert contention(lock_job(wait=["none"] * 4))[0] == [-1] * 4
