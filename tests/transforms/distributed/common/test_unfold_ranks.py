"""Ranks that are alike are simulated once, and that equals simulating all of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretrace.errors import TransformError
from foretrace.graph.check import check
from foretrace.graph.literal import literal
from foretrace.graph.shared_links import Network
from foretrace.replaying.replay import replay
from foretrace.transforms.distributed.common.unfold_ranks import count_alike, separate_rank, unfold
from foretrace.transforms.distributed.pipeline.pipeline import pipeline
from foretrace.transforms.distributed.straggler import straggler
from foretrace.transforms.registry import TRANSFORMS
from tests.support.jobs.layers import cpu_job_with_layers, cpu_layers, gpu_layers
from tests.support.jobs.simple import cpu_job, gpu_job

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

WIRE: dict[str, Any] = {"network": "10Gbps", "activation_mb": 0.01}


def data_parallel(job: Graph, workers: int) -> Graph:
    """Return *job* on so many workers that add up 4 MB."""
    return TRANSFORMS["ddp"](job, workers=workers, network="10Gbps", gradient_mb=4)


def with_parameters(job: Graph) -> Graph:
    """Return *job*, whose recorder saw a parameter of 1 MB in each of two layers."""
    seen = {"parameters": [["0.weight", [250_000], 4], ["1.weight", [250_000], 4]]}
    return replace(job, meta=replace(job.meta, extra=seen))


def plans() -> dict[str, Graph]:
    """Return jobs in which one rank stands for several."""
    return {
        "ddp on CPUs": data_parallel(cpu_job(), 4),
        "ddp on devices": data_parallel(gpu_job(), 4),
        "pipelines on devices": pipeline(
            with_parameters(gpu_layers()), stages=2, micro_batches=2, replicas=3, **WIRE
        ),
        "pipelines on CPUs": pipeline(
            cpu_job_with_layers(), stages=2, micro_batches=2, replicas=3, **WIRE
        ),
    }


@pytest.mark.parametrize(
    "name", ["ddp on CPUs", "ddp on devices", "pipelines on CPUs", "pipelines on devices"]
)
@pytest.mark.parametrize("copies", [2, 3])
def test_unfolded_ranks_take_as_long_as_one_for_all(name: str, copies: int) -> None:
    """To the nanosecond."""
    folded = plans()[name]

    assert replay(check(unfold(folded, copies))).step_ns == replay(folded).step_ns


@given(
    st.lists(st.tuples(st.sampled_from(["kernel", "collective"]), st.integers(0, 90)), min_size=1),
    st.integers(2, 4),
)
@settings(max_examples=30, deadline=None)
def test_any_alike_ranks_take_as_long_as_one(tasks: list[tuple[str, int]], copies: int) -> None:
    """Random orders of kernels and collectives on two streams."""
    graph = literal(
        [(f"t{at}", kind, at % 2, work, None) for at, (kind, work) in enumerate(tasks)], wrap=True
    )

    assert replay(check(unfold(graph, copies))).step_ns == replay(graph).step_ns


def test_copies_meet_at_their_collectives() -> None:
    """One of three copies computes 80 instead of 50 ns: all reduce 30 ns later."""
    graph = literal(
        [("mm", "kernel", 0, 50, None), ("all_reduce", "collective", 0, 20, None)], wrap=True
    )
    apart = unfold(graph, 3)
    work = apart.tasks["work_ns"].to_numpy().copy()
    work[apart.tasks["name"] == "mm"] = [50, 80, 50]

    assert replay(apart).step_ns == 70
    assert replay(replace(apart, tasks=apart.tasks.assign(work_ns=work))).step_ns == 100
    assert apart.lanes["rank"].tolist() == [0, 1, 2, 0]


def test_one_copy_is_the_graph_itself() -> None:
    """Nothing to do."""
    graph = gpu_job()

    assert unfold(graph, 1) is graph


def test_memory_does_not_grow_with_ranks_that_are_alike() -> None:
    """1,024 workers are as many tasks as 2."""
    few, many = (data_parallel(cpu_job(), workers) for workers in (2, 1024))

    assert len(few.tasks) == len(many.tasks)
    assert count_alike(many) == 1024


def test_a_slow_rank_is_simulated_apart_from_the_others() -> None:
    """Of 1,000 workers one is slow: two are simulated, and all wait for it."""
    folded = data_parallel(gpu_job(work=100_000_000), 1_000)
    slow = straggler(folded, rank=731, slowdown=3)

    assert sorted(set(slow.lanes["rank"])) == [0, 1]
    assert replay(slow).step_ns > 1.5 * replay(folded).step_ns
    assert slow.notes[-1] == "straggler: rank 731 computes 3 times as slowly"


def test_a_slow_rank_of_a_plan_is_of_its_stage() -> None:
    """Rank 5 of two stages with three replicas each is a replica of stage 1."""
    folded = pipeline(cpu_job_with_layers(), stages=2, micro_batches=2, replicas=3, **WIRE)
    apart, number = separate_rank(folded, 5)

    assert number == 1
    assert sorted(set(apart.lanes["rank"][apart.lanes["kind"] == "thread"])) == [0, 1, 2, 3]
    assert replay(straggler(folded, rank=5, slowdown=2)).step_ns > replay(folded).step_ns
    with pytest.raises(TransformError, match="rank=6 is none of this job's 6 ranks"):
        straggler(folded, rank=6, slowdown=2)


def test_links_of_the_copies_are_their_own_and_shared_ones_are_one() -> None:
    """Sends between stages run per copy; sums over copies run once, on a lane of all ranks."""
    graph = literal(
        [
            ("mm", "kernel", 0, 50, None),
            ("send", "p2p", 1, 10, None),
            ("sum", "collective", 2, 20, None),
            ("nccl", "collective", 3, 20, None),
        ],
    )
    kinds = graph.lanes["kind"].astype(object).tolist()
    kinds[1:3] = ["link", "link"]
    graph = replace(graph, lanes=graph.lanes.assign(kind=kinds).astype({"kind": "category"}))
    graph = graph.with_state(
        network=Network(("wire",), ((1, 0, 0.5), (2, 0, 0.5), (3, 0, 0.5)), members=((1, 0),))
    )
    apart = check(unfold(graph, 2))

    assert apart.lanes["rank"].tolist() == [0, 0, 0, 1, 1, 1, 0, 0]
    assert apart.lanes["kind"].tolist() == ["stream", "link", "stream"] * 2 + ["link"] * 2
    network = apart.state.network
    assert network is not None
    assert sorted(network.routes) == [(1, 0, 0.5), (4, 0, 0.5), (6, 0, 0.5), (7, 0, 0.5)]
    assert sorted(network.members) == [(1, 0), (4, 1), (6, 0), (6, 1), (7, 0), (7, 1)]


@pytest.mark.parametrize("job", [cpu_layers, gpu_layers])
def test_jobs_of_one_rank_have_no_others(job: Any) -> None:
    """A slow rank needs somebody who waits."""
    with pytest.raises(TransformError, match="this job has one rank"):
        separate_rank(job(), 0)
