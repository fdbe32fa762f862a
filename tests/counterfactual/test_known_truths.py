"""Programs whose step times before and after a change another simulator has worked out as well."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.counterfactual.changes import FasterKernels, Workers
from tests.counterfactual.program import (
    Collective,
    GraphLaunch,
    HostWork,
    Launch,
    Loader,
    NextBatch,
    Node,
    Program,
    Range,
    RecordEvent,
    SyncDevice,
    SyncEvent,
    SyncStream,
    WaitEvent,
    item,
    program,
)
from tests.counterfactual.simulate import simulate

if TYPE_CHECKING:
    from tests.counterfactual.changes import Change

ALL_3 = FasterKernels(".*", 3)


def products(count: int, ns: int, gap_ns: int = 10_000) -> list[Any]:
    """Return *count* matrix products with a kernel of *ns* each."""
    one = Range("aten::mm", (HostWork(10_500), Launch("ampere_sgemm", ns), HostWork(4_000)))
    return [one, HostWork(gap_ns)] * count


def all_reduce(event: int, ns: int) -> Range:
    """Return an all-reduce on a stream of its own, after the work so far."""
    inside = (
        *(HostWork(12_500), RecordEvent(event), HostWork(500), WaitEvent(event, 24)),
        *(HostWork(500), Collective(4, 0, ns, 24), RecordEvent(event + 1, 24), HostWork(6_000)),
    )
    return Range("c10d::allreduce_", inside)


def layer(number: int) -> list[Node]:
    """Return a layer of a graph: five products, a branch beside them, and where both join."""
    first = 6 * number
    products = [Node("ampere_sgemm", 40_000)] * 3
    joined = Node("reduce_kernel", 4_000, 0, (first + 1,))
    return [Node("ampere_sgemm", 40_000), Node("ew_kernel", 80_000, 1), *products, joined]


CASES: dict[str, tuple[Program, Change, float, float]] = {
    "every launch is blocked": (program(*products(100, 100_000)), ALL_3, 10_120, 3_453),
    "event sync on the step before": (
        program(*products(10, 100_000), SyncEvent(1), RecordEvent(1)),
        ALL_3,
        1_012,
        345,
    ),
    "loader that never was the limit": (
        program(NextBatch(), *products(8, 100_000, 60_000), loader=Loader(1, 500_000, 150_000)),
        Workers(8, 1),
        824,
        824,
    ),
    "fewer workers": (
        program(NextBatch(), *products(8, 800_000), loader=Loader(4, 9_000_000, 150_000)),
        Workers(1, 4),
        6_410,
        9_000,
    ),
    "loader is the limit afterwards": (
        program(NextBatch(), *products(8, 250_000), item(), loader=Loader(1, 2_150_000, 150_000)),
        ALL_3,
        2_219,
        2_150,
    ),
    "all-reduces wait for events": (
        program(
            *(*products(6, 100_000), all_reduce(1, 300_000)),
            *(*products(6, 100_000), all_reduce(3, 300_000)),
            *(WaitEvent(2, 7), WaitEvent(4, 7), *products(2, 60_000)),
            *(SyncDevice(), HostWork(20_000)),
        ),
        ALL_3,
        1_709,
        637,
    ),
    "two ranks": (
        program(
            *(*products(6, 60_000), all_reduce(1, 900_000)),
            *(*products(2, 60_000), all_reduce(3, 1_500_000)),
            *(WaitEvent(2, 7), WaitEvent(4, 7), *products(2, 60_000)),
            slowness=(1.0, 1.0),
        ),
        FasterKernels("nccl", 2),
        2_893,
        1_693,
    ),
    "join inside a graph": (
        program(
            GraphLaunch((*layer(0), *layer(1), *layer(2))),
            *(HostWork(1_000), SyncStream(), HostWork(100_000)),
        ),
        FasterKernels("gemm", 3),
        654,
        401,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_known_truth(name: str) -> None:
    """Before and after agree within 1 %."""
    asked, change, before, after = CASES[name]

    assert simulate(asked).period_ns() / 1_000 == pytest.approx(before, rel=0.01)
    assert simulate(change.of(asked)).period_ns() / 1_000 == pytest.approx(after, rel=0.01)
