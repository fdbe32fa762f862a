"""Collectives in a graph: told by their names, and whose they are."""

from __future__ import annotations

import pytest

from foretrace.errors import TransformError
from foretrace.graph.literal import literal
from foretrace.transforms.cluster.placement import Placed
from foretrace.transforms.cluster.presets import ethernet
from foretrace.transforms.distributed.common.collective_tasks import (
    collectives,
    kind_of,
    kinds_of,
    with_workers,
    workers_of,
)

NAMES = (
    ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "all_reduce"),
    ("ncclKernel_ReduceScatter_RING_SIMPLE", "reduce_scatter"),
    ("ncclDevKernel_AllGather_RING_LL", "all_gather"),
    ("FSDP all_gather", "all_gather"),
    ("ncclBroadcastRingLLKernel", "broadcast"),
    ("nccl:all_to_all", "all_to_all"),
    ("ncclDevKernel_SendRecv", None),
)


@pytest.mark.parametrize(("name", "kind"), NAMES)
def test_names_tell_the_kind(name: str, kind: str | None) -> None:
    """Recorded or predicted."""
    assert kind_of(name) == kind


def test_only_transfers_count() -> None:
    """A host task that issues an all_reduce is none."""
    graph = literal(
        [("issue all_reduce", "host", 0, 5, None), ("all_reduce", "collective", 1, 5, None)]
    )

    assert kinds_of(graph) == [None, "all_reduce"]
    assert collectives(graph, "all_reduce", "dgc").tolist() == [1]


def test_what_is_not_there_is_asked_for() -> None:
    """One sentence says how to get it."""
    graph = literal([("a", "host", 0, 5, None)])

    with pytest.raises(TransformError, match="no all_reduce in this graph; put ddp"):
        collectives(graph, "all_reduce", "dgc")
    with pytest.raises(TransformError, match="dgc needs a job whose workers and network are known"):
        workers_of(graph, "dgc")


def test_workers_stay_with_the_graph() -> None:
    """What ddp placed, a later what-if finds."""
    placed = Placed(ethernet(2, 1.0), (0, 1))

    assert workers_of(with_workers(literal([("a", "host", 0, 5, None)]), placed), "dgc") is placed
