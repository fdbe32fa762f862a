"""Collectives in a graph: told by their names, and whose they are."""

from __future__ import annotations

import pytest

from foretrace.errors import TransformError
from foretrace.graph.literal import literal
from foretrace.transforms.distributed.common.collective_tasks import collectives, kind_of, kinds_of

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
