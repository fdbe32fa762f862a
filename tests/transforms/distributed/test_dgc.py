"""dgc: what travels instead of gradients, and the work before and after it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from foretrace.errors import TransformError
from foretrace.replaying.replay import replay
from foretrace.testing import check_transform
from foretrace.transforms.cluster.presets import ethernet
from foretrace.transforms.collectives.cost import collective_cost
from foretrace.transforms.distributed.ddp.ddp import ddp
from foretrace.transforms.distributed.dgc import dgc
from tests.support.jobs.sharded import device_job, host_job

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

SIZE = 1_500_000


def job(kind: Any = host_job) -> Graph:
    """Return two workers at 1 Gbit/s that add up all gradients in one bucket."""
    return ddp(kind(), workers=2, network="1Gbps", bucket_cap_mb=25)


def cost(kind: str, size: float) -> int:
    """Return what a collective costs between two hosts at 1 Gbit/s."""
    return collective_cost(ethernet(2, 1.0), (0, 1), kind, size).ns


def test_values_and_places_are_gathered() -> None:
    """1 % of 1.5 MB, twice for the indices, of two workers; what the link costs beside stays."""
    before, after = job(), dgc(job(), ratio=0.01)
    old, new = (g.tasks[g.tasks["kind"] == "collective"].iloc[0] for g in (before, after))
    sent = 2 * 0.01 * SIZE * 2

    assert (str(new["name"]), new["bytes"]) == ("DGC all_gather", sent)
    assert old["work_ns"] - new["work_ns"] == cost("all_reduce", SIZE) - cost("all_gather", sent)


def test_memory_passes_come_before_and_after() -> None:
    """Eleven passes before the exchange, one and what came after it, at 10 GB/s."""
    tasks = dgc(job(), ratio=0.01).tasks
    work = tasks.groupby("name", observed=True)["work_ns"].unique()

    assert work["DGC compress"].tolist() == [11 * SIZE // 10]
    assert work["DGC restore"].tolist() == [(SIZE + 60_000) // 10]


def test_exchange_waits_for_compression_and_the_update_for_the_rest() -> None:
    """In this order on a CPU: gradients, compress, gather, restore, update."""
    for kind in (host_job, device_job):
        graph = dgc(job(kind))
        timeline = replay(graph)
        names, steps = graph.tasks["name"].astype(str), graph.tasks["step"]
        update = "update" if kind is host_job else "update_kernel"
        chain = ("DGC compress", "DGC all_gather", "DGC restore", update)
        rows = [graph.tasks.index[(names == name) & (steps == 1)][0] for name in chain]

        for one, other in pairwise(rows):
            assert timeline.end_ns[one] <= timeline.start_ns[other]


def test_slow_network_gains_and_a_fast_one_pays() -> None:
    """Compression costs the same on both."""
    slow, fast = (
        ddp(host_job(), workers=2, network=rate, bucket_cap_mb=25)
        for rate in ("100Mbps", "100Gbps")
    )

    assert replay(dgc(slow)).step_ns < replay(slow).step_ns
    assert replay(dgc(fast)).step_ns > replay(fast).step_ns


@pytest.mark.parametrize(("ratio", "text"), [(0, "ratio=0 is out"), (1.5, "ratio=1.5 is out")])
def test_a_share_is_between_0_and_1(ratio: float, text: str) -> None:
    """Nothing, or more than everything, is no share."""
    with pytest.raises(TransformError, match=text):
        dgc(job(), ratio=ratio)


def test_an_all_reduce_without_a_source_is_refused() -> None:
    """Where nothing tells which task makes the data, nothing can be put before it."""
    graph = job()
    kept = graph.edges["kind"] != "event"
    cut = replace(graph, edges=graph.edges[kept].reset_index(drop=True))

    with pytest.raises(TransformError, match="dgc cannot tell from this graph which task makes"):
        dgc(cut)


@pytest.mark.parametrize("kind", [host_job, device_job])
def test_contract(kind: Any) -> None:
    """Input untouched, output valid, the same twice, labelled and explained."""
    changed = check_transform(dgc, job(kind))

    assert changed.notes[-1] == (
        "dgc: 0.001 of the gradients and their places travel, 0.012 MB instead of 3 in 2 steps"
    )
