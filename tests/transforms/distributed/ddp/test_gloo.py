"""DDP over gloo on small CPU jobs: what is put where, and what a step takes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from foretrace.graph.check import check
from foretrace.replaying.replay import replay
from foretrace.transforms.batching.gradient_accumulation import gradient_accumulation
from foretrace.transforms.cluster.model import Host
from foretrace.transforms.cluster.placement import place_workers
from foretrace.transforms.cluster.presets import ethernet
from foretrace.transforms.distributed.common.buckets import caps
from foretrace.transforms.distributed.common.gradients import find_gradients
from foretrace.transforms.distributed.common.overlap import host_shares
from foretrace.transforms.distributed.ddp.ddp import ddp
from foretrace.transforms.distributed.ddp.gloo import (
    COPY_NS_PER_BYTE,
    ISSUE_NS,
    exchange_on_host,
    wake_ns,
)
from foretrace.transforms.distributed.ddp.plan import ExchangePlan, plan_exchanges
from tests.support.jobs.gradients import MS, cpu_job

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

RING_NS = 8 * 1.0456 * 1_000_000 + 65_000
"""An all-reduce of 1 MB between two ranks at 1 Gbit/s: ring, Ethernet's headers, start."""
COPY_NS = COPY_NS_PER_BYTE * 1_000_000
HOST = ethernet(2, 1.0).host
BUCKET_NS, WAKE_NS = 1000 * HOST.bucket_us, 1000 * HOST.wake_us


def names(graph: Graph, lane: int) -> list[str]:
    """Return the tasks of a lane in the order in which they run."""
    order = np.argsort(replay(graph).start_ns, kind="stable")
    return [str(graph.tasks["name"].iloc[i]) for i in order if graph.tasks["lane"].iloc[i] == lane]


def works(graph: Graph, name: str) -> list[int]:
    """Return what the tasks of a name cost."""
    return graph.tasks["work_ns"][graph.tasks["name"] == name].tolist()


def changed(graph: Graph, **parameters: Any) -> Graph:
    """Return *graph* with two workers at 1 Gbit/s, or as *parameters* say."""
    return check(ddp(graph, **{"workers": 2, "network": "1Gbps", **parameters}))


def test_one_bucket_is_sent_after_its_last_gradient() -> None:
    """Copies with the gradients, then the issue; after backward the wait and the copy out.

    main  fwd bwd copy bwd copy issue | wait copy | update
    link                        all_reduce
    """
    graph = changed(cpu_job(shapes=["[[1000,250]]", "[[500,500]]"]), bucket_cap_mb=25.0)

    assert names(graph, 0) == [
        "fwd", "bwd", "accumulate", "DDP copy to bucket", "bwd", "accumulate",
        "DDP copy to bucket", "DDP issue all_reduce", "wait for communication",
        "DDP copy from bucket", "update",
    ]  # fmt: skip
    assert names(graph, 1) == ["DDP all_reduce"]
    assert works(graph, "DDP copy to bucket") == [COPY_NS, COPY_NS]
    assert works(graph, "DDP copy from bucket") == [2 * COPY_NS]
    assert graph.tasks["bytes"].max() == 2_000_000


def test_a_step_takes_what_its_parts_take() -> None:
    """Nothing overlaps with the only bucket: compute, copies, issue, transfer, waking, copy out."""
    job = cpu_job(shapes=["[[1000,250]]"])
    step = replay(changed(job)).step_ns

    lone = replay(job).step_ns
    assert lone == 35 * MS
    assert step == pytest.approx(
        lone + 2 * COPY_NS + ISSUE_NS + RING_NS + BUCKET_NS + WAKE_NS, rel=1e-4
    )


def test_small_buckets_overlap_with_backward_and_slow_it() -> None:
    """The first transfer runs under the second backward task, which keeps 0.83 of its speed."""
    job = cpu_job(shapes=["[[1000,250]]", "[[500,500]]"], backward=20 * MS)
    compute, transfer = host_shares(ethernet(2, 1.0))
    graph = changed(job, bucket_cap_mb=0.5)
    timeline = replay(graph)

    link = (graph.tasks["name"] == "DDP all_reduce").to_numpy()
    second = np.flatnonzero((graph.tasks["name"] == "bwd").to_numpy())[1]
    lengths = (timeline.end_ns - timeline.start_ns)[link]
    alone = RING_NS + BUCKET_NS
    assert lengths[0] == pytest.approx(alone / transfer, rel=0.01)
    slowed = (timeline.end_ns - timeline.start_ns)[second]
    assert slowed == pytest.approx(20 * MS + lengths[0] * (1 - compute), rel=0.03)
    assert lengths[1] == pytest.approx(alone, rel=5e-3)


def test_transfers_queue_on_the_link() -> None:
    """Two buckets that are ready at once take the time of both: the link conserves work."""
    job = cpu_job(shapes=["[[1000,250]]", "[[500,500]]"], backward=0)
    one = replay(changed(job, bucket_cap_mb=25.0)).step_ns
    two = replay(changed(job, bucket_cap_mb=0.5)).step_ns

    assert two - one == pytest.approx(BUCKET_NS + 65_000, abs=0.02 * one)


def test_every_step_of_the_window_is_changed_alike() -> None:
    """The period of three recorded steps is that of one."""
    one, three = (replay(changed(cpu_job(steps=n))).step_ns for n in (1, 3))

    assert three == pytest.approx(one, rel=1e-6)


def test_gradients_that_live_in_their_buckets_are_not_copied_out() -> None:
    """The wait stays."""
    job = cpu_job()
    plain, view = changed(job), changed(job, gradient_as_bucket_view=True)

    assert works(view, "DDP copy from bucket") == [0]
    saved = replay(plain).step_ns - replay(view).step_ns
    assert saved == pytest.approx(COPY_NS_PER_BYTE * 2_001_000, rel=0.01)


def test_half_precision_halves_the_bytes_and_casts() -> None:
    """Twice 6 bytes per element at the rate probed for casts (20 GB/s), half the link's time."""
    job = cpu_job(shapes=["[[1000,250]]"], machine={"cast_gbps": 20.0})
    plain, half = changed(job), changed(job, compression="fp16")

    assert half.tasks["bytes"].max() == 500_000
    assert works(half, "DDP compress") == [75_000]
    assert works(half, "DDP copy from bucket") == [75_000 + COPY_NS]
    saved = replay(plain).step_ns - replay(half).step_ns
    assert saved == pytest.approx(0.5 * (RING_NS - 65_000) - 2 * 75_000, rel=0.01)


def test_casts_of_an_unknown_machine_cost_as_much_as_copies() -> None:
    """A recording that was not probed."""
    assert works(changed(cpu_job(shapes=["[[1000,250]]"]), compression="fp16"), "DDP compress") == [
        COPY_NS
    ]


def test_buffers_are_sent_before_the_forward_pass() -> None:
    """Those that the recorder saw; none where none are wanted."""
    job = cpu_job()
    extra = {"buffers": [["norm.running_mean", [1_000], 4], ["norm.count", [], 8]]}
    job = replace(job, meta=replace(job.meta, extra=extra))
    graph = changed(job)

    assert names(graph, 0)[:2] == ["DDP broadcast buffers", "fwd"]
    assert works(graph, "DDP broadcast buffers")[0] > 4_008 * 8
    assert "DDP broadcast buffers" not in names(changed(job, broadcast_buffers=False), 0)


def test_the_slowest_worker_delays_the_transfer() -> None:
    """Steps of 35 and 45 ms in turn: the later of two is 2.5 ms behind the mean at the end."""
    steady = cpu_job(shapes=["[[1000,250]]"], unprofiled_step_ns=(35 * MS,) * 8)
    varied = cpu_job(shapes=["[[1000,250]]"], unprofiled_step_ns=(35 * MS, 45 * MS) * 4)
    late = replay(changed(varied)).step_ns - replay(changed(steady)).step_ns

    ready, inside = 30, 30
    assert late == pytest.approx(2.5 * MS * ready / inside, rel=0.01)


@pytest.mark.parametrize("k", [2, 4])
def test_accumulation_exchanges_once_in_either_order(k: int) -> None:
    """A step with no_sync is a plain one and k − 1 times forward and backward."""
    job = cpu_job()
    both = changed(gradient_accumulation(job, k=k)), gradient_accumulation(changed(job), k=k)
    plain = replay(changed(job)).step_ns
    batches = replay(gradient_accumulation(job, k=k)).step_ns - replay(job).step_ns

    for graph in both:
        check(graph)
        assert (graph.tasks["kind"] == "collective").sum() == 1
        assert replay(graph).step_ns == pytest.approx(plain + batches, rel=2e-3)


def test_a_shaped_link_shortens_the_first_transfer() -> None:
    """128 KB at 1 Gbit/s: 1.05 ms less, once per step."""
    job = cpu_job(shapes=["[[1000,250]]"])

    def step_ns(burst_bytes: int) -> float:
        placed = place_workers(2, cluster=ethernet(2, 1.0, burst_bytes=burst_bytes))
        plan = ExchangePlan(
            placed, plan_exchanges(find_gradients(job), caps(), placed, compressed=False)
        )
        return replay(exchange_on_host(job, plan)).step_ns

    assert step_ns(0) - step_ns(131_072) == pytest.approx(131_072 * 8, rel=1e-3)


def test_hosts_of_which_nothing_is_known_neither_slow_down_nor_sleep_long() -> None:
    """A cluster file may say nothing of them."""
    silent = replace(ethernet(2, 1.0), host=Host())

    assert host_shares(silent) == (1.0, 1.0)
    assert wake_ns(silent) == 0


def test_the_network_slows_only_the_host_of_the_worker() -> None:
    """What the replay is told."""
    network = changed(cpu_job()).state.network

    assert network is not None
    assert network.members == ((1, 0),)
    assert network.slowed == ("host",)
