"""Pipelines of literal jobs, written out; what is refused; and the contract."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from foretrace.errors import TransformError
from foretrace.graph.check import check
from foretrace.replaying.replay import replay
from foretrace.transforms.batching.gradient_accumulation import gradient_accumulation
from foretrace.transforms.cluster.presets import ethernet
from foretrace.transforms.distributed.pipeline.pipeline import pipeline
from foretrace.transforms.edit.provenance import samples
from tests.support.jobs.layers import (
    cpu_job_with_layers,
    cpu_layers,
    gpu_layers,
    transfer_ns,
    without_sharing,
)
from tests.support.jobs.simple import cpu_job

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

US = 1_000
WAKE_NS = 1_000_000  # a quarter of a tick, for a host that waits for a message
WIRE: dict[str, Any] = {"network": "10Gbps", "activation_mb": 0.01}


def piped(graph: Graph, **parameters: Any) -> Graph:
    """Return *graph* as a pipeline over a fast network, transfers slowing nobody."""
    return without_sharing(check(pipeline(graph, **{**WIRE, **parameters})))


def test_one_micro_batch_runs_from_stage_to_stage() -> None:
    """Nothing overlaps: all passes, two transfers, and half of the update on the first stage."""
    changed = piped(cpu_layers(), stages=2, micro_batches=1)

    passes = (2 * 204 + 2 * 404 + 20) * US
    assert replay(changed).step_ns == passes + 2 * (transfer_ns(changed) + WAKE_NS)
    assert changed.tasks["work_ns"].sum() == cpu_layers().tasks["work_ns"].sum() + 2 * transfer_ns(
        changed
    )


@pytest.mark.parametrize("blocking", [True, False])
def test_gpipe_over_gloo_written_out(blocking: bool) -> None:  # noqa: FBT001
    """Two stages, two micro-batches of 104 and 204 µs; a transfer and waking up take c.

    0: F0 0, F1 104+c, B0 516+3c, B1 720+3c, update 924+3c
    1: F0 104+c, F1 208+2c, B0 312+2c, B1 516+2c
    """
    changed = piped(cpu_layers(), stages=2, micro_batches=2, blocking=blocking)
    c = transfer_ns(changed) + WAKE_NS

    assert replay(changed).step_ns == 944 * US + 3 * c
    forward = (changed.tasks["name"] == "aten::relu").to_numpy()
    assert (changed.tasks["work_ns"][forward] == 104 * US).all()


def test_a_blocking_send_holds_the_sender() -> None:
    """With three stages the middle one cannot take F1 before it got rid of F0."""
    slow = {"network": "100Mbps", "activation_mb": 10}
    job = cpu_layers(("0", "1", "2"))
    waits, goes_on = (
        replay(piped(job, stages=3, micro_batches=4, blocking=blocking, **slow)).step_ns
        for blocking in (True, False)
    )

    assert waits > goes_on


def test_one_forward_one_backward_with_blocking_sends_deadlocks() -> None:
    """As two such processes do from the second micro-batch on; one alone runs."""
    plan: dict[str, Any] = {"stages": 2, "schedule": "1f1b", "blocking": True}

    assert replay(piped(cpu_layers(), micro_batches=1, **plan)).step_ns > 0
    with pytest.raises(TransformError, match="blocking sends deadlock with schedule='1f1b'"):
        piped(cpu_layers(), micro_batches=2, **plan)


def test_one_forward_one_backward_on_devices_written_out() -> None:
    """Kernels of 1,000 µs, halves of 501; the update's of 500; launches far ahead; a transfer: c.

    0: F0 0, F1 501, B0 1503+2c, B1 2505+2c, update 3006+2c
    1: F0 501+c, B0 1002+c, F1 1503+c, B1 2004+c
    Hosts launch as before, but a loop over half of the tensors takes half as long.
    """
    job = gpu_layers(work=1_000 * US, steps=2)
    changed = piped(job, stages=2, micro_batches=2, schedule="1f1b")
    c = transfer_ns(changed)

    assert c < 501 * US
    assert replay(changed).step_ns == 3_506 * US + 2 * c
    calls = changed.tasks["kind"] == "launch"
    in_update = changed.tasks["phase"] == "optimizer"
    assert set(changed.tasks["work_ns"][calls & ~in_update]) == {5 * US}
    assert set(changed.tasks["work_ns"][calls & in_update]) == {2_500}


def test_threads_of_a_rank_become_one() -> None:
    """Autograd's thread works while the main one waits for it: their tasks are in one order."""
    changed = piped(gpu_layers(), stages=2, micro_batches=2)

    assert changed.lanes[["kind", "rank"]].to_numpy().tolist() == [
        ["thread", 0],
        ["stream", 0],
        ["thread", 1],
        ["stream", 1],
        ["link", 0],
        ["link", 1],
    ]
    assert not changed.edges["kind"].isin(["fork", "join"]).any()


def test_a_host_that_sets_the_pace_still_does() -> None:
    """Kernels of 3 µs: no number of stages makes launches of 5 µs faster."""
    job = gpu_layers(work=3 * US, steps=2)
    changed = piped(job, stages=2, micro_batches=4)

    assert replay(changed).step_ns > 2 * 4 * 2 * 5 * US
    assert replay(changed).step_ns > replay(job).step_ns


def test_more_micro_batches_shrink_the_bubble() -> None:
    """Over a fast network a step approaches the work of one stage."""
    steps = [
        replay(piped(gpu_layers(work=10_000 * US), stages=2, micro_batches=m)).step_ns
        for m in (1, 2, 4, 8)
    ]

    assert steps == sorted(steps, reverse=True)
    assert steps[-1] < 0.7 * steps[0]


def test_an_interleaved_schedule_has_a_smaller_bubble() -> None:
    """Two chunks per rank: the pipeline fills in half the time."""
    job = gpu_layers(("0", "1", "2", "3"), work=10_000 * US)
    plain = piped(job, stages=2, micro_batches=4, schedule="1f1b")
    interleaved = piped(job, stages=2, micro_batches=4, schedule="interleaved", chunks=2)

    assert replay(interleaved).step_ns < replay(plain).step_ns
    assert {0, 1} == set(interleaved.lanes["rank"])


def test_only_the_first_stage_loads() -> None:
    """What runs once per step runs on every rank, but for loading."""
    changed = piped(cpu_layers(load=70 * US), stages=2, micro_batches=2)
    tasks = changed.tasks
    rank = changed.lanes["rank"].to_numpy()[tasks["lane"].to_numpy()]

    assert rank[(tasks["name"] == "next").to_numpy()].tolist() == [0]
    assert tasks["work_ns"][tasks["name"] == "next"].tolist() == [70 * US]
    assert rank[(tasks["name"] == "step").to_numpy()].tolist() == [0, 1]
    assert tasks["work_ns"][tasks["name"] == "step"].tolist() == [20 * US] * 2


def test_steps_keep_their_own_times() -> None:
    """A window of two steps stays one of two; each stage's lanes repeat."""
    graph = cpu_layers(steps=2)
    slow = graph.tasks["work_ns"] * np.where(graph.tasks["step"] == 1, 2, 1)
    changed = piped(
        replace(graph, tasks=graph.tasks.assign(work_ns=slow)), stages=2, micro_batches=1
    )
    c = transfer_ns(changed) + WAKE_NS

    assert changed.steps == 2
    assert replay(changed).period_ns == 3 * (2 * 204 + 2 * 404 + 20) * US + 4 * c


def test_replicas_add_up_their_gradients_after_the_last_backward_pass() -> None:
    """2.5 MB of gradients known from the model: half of them per stage."""
    graph = cpu_job_with_layers()
    alone = piped(graph, stages=2, micro_batches=1)
    changed = piped(graph, stages=2, micro_batches=1, replicas=4)
    sums = changed.tasks[changed.tasks["kind"] == "collective"]
    assert (samples(alone), samples(changed)) == (1, 4)

    assert sums["bytes"].tolist() == [1_000_000.0, 1_000_000.0]
    assert changed.meta.world_size == 8
    assert len(changed.state.workers.devices) == 8
    grown = replay(changed).step_ns - replay(alone).step_ns
    assert grown == pytest.approx(sums["work_ns"].iloc[0], rel=0.01)


def test_replicas_on_devices_add_up_behind_the_last_kernel() -> None:
    """The update's kernel waits for the sum, the sum for the last backward kernel."""
    seen = {"parameters": [["0.weight", [250_000], 4], ["1.weight", [250_000], 4]]}
    graph = gpu_layers(work=1_000 * US)
    graph = replace(graph, meta=replace(graph.meta, extra=seen))
    alone = piped(graph, stages=2, micro_batches=1)
    changed = piped(graph, stages=2, micro_batches=1, replicas=2)
    sums = changed.tasks[changed.tasks["kind"] == "collective"]

    grown = replay(changed).step_ns - replay(alone).step_ns
    assert grown == sums["work_ns"].iloc[0]


def test_calls_of_a_fused_update_stay() -> None:
    """Its kernel shrinks with the parameters; it is launched once all the same."""
    graph = gpu_layers()
    graph = replace(graph, meta=replace(graph.meta, optimizer={"kind": "fused"}))
    tasks = piped(graph, stages=2, micro_batches=1).tasks
    update = tasks[tasks["phase"] == "optimizer"]

    assert update["work_ns"].tolist() == [5_000, 50_000] * 2


def test_transfers_that_can_meet_on_a_link_share_it() -> None:
    """Three stages in two racks: what crosses the uplink one way may meet there."""
    changed = pipeline(
        cpu_layers(("0", "1", "2")), stages=3, micro_batches=2, network="1Gbps", activation_mb=1
    )
    network = changed.state.network
    assert network is not None

    assert network.slowed == ("host",)
    assert 0 < network.compute_share < 1
    assert {rank for _, rank in network.members} == {0, 1, 2}


def test_one_of_everything_changes_nothing() -> None:
    """No network is needed for that."""
    graph = cpu_layers()

    assert pipeline(graph, stages=1, micro_batches=1) is graph


def test_a_shaped_link_lends_time_after_a_pause() -> None:
    """131,072 bytes at 1 Gbit/s are 1.05 ms; while a stage computes 0.1 ms it saves up as much."""
    plan: dict[str, Any] = {"stages": 2, "micro_batches": 2, "activation_mb": 2}
    shaped, plain = (
        pipeline(cpu_layers(), **{**plan, "cluster": ethernet(2, 1.0, burst_bytes=burst)})
        for burst in (131_072, 0)
    )
    lent = transfers_ns(plain) - transfers_ns(shaped)

    assert lent[0] == pytest.approx(131_072 * 8, rel=0.01)
    assert 0 <= lent[1] <= 205 * US


def transfers_ns(graph: Graph) -> np.ndarray[Any, Any]:
    """Return what the transfers take, in order."""
    return graph.tasks["work_ns"][graph.tasks["kind"] == "p2p"].to_numpy()


def test_one_stage_with_micro_batches_accumulates_gradients() -> None:
    """Two passes of half the batch, no transfer."""
    changed = check(pipeline(cpu_layers(), stages=1, micro_batches=2))

    assert replay(changed).step_ns == (2 * 2 * 104 + 2 * 2 * 204 + 40) * US
    assert not (changed.lanes["kind"] == "link").any()


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"stages": 0, "micro_batches": 1}, "stages=0 is out of range"),
        ({"stages": 2, "micro_batches": 0}, "micro_batches=0 is out of range"),
        ({"stages": 2, "micro_batches": 1, "replicas": 0}, "replicas=0 is out of range"),
        ({"stages": 5, "micro_batches": 1}, "5 pieces, and the model has 2 layers"),
        ({"stages": 2, "micro_batches": 3}, "micro_batches=3 does not divide the 8 samples"),
        ({"stages": 2, "micro_batches": 2, "schedule": "gpipes"}, "did you mean gpipe"),
        ({"stages": 2, "micro_batches": 1, "chunks": 2}, "needs schedule='interleaved'"),
        ({"stages": 2, "micro_batches": 1, "backend": "nccl"}, "this job would use gloo"),
        ({"stages": 2, "micro_batches": 1, "network": None}, "nothing says what joins 2 workers"),
        ({"stages": 2, "micro_batches": 1, "cluster": "dgx-a100"}, "joins devices, and this is a"),
        (
            {"stages": 2, "micro_batches": 1, "activation_mb": -1},
            "activation_mb=-1 is out of",
        ),
        ({"stages": 10**6, "micro_batches": 4}, "1,000,000 workers are more than any cluster has"),
        ({"stages": 2, "micro_batches": 1, "activation_mb": None}, "tells no shape of what goes"),
        ({"stages": 2, "micro_batches": 1, "replicas": 2}, "does not tell how large the gradients"),
        ({"stages": 2, "micro_batches": 10**7, "recorded": 10**7}, "more than 20,000,000 tasks"),
    ],
)
def test_absurd_pipelines_are_refused(parameters: dict[str, Any], text: str) -> None:
    """One sentence each."""
    with pytest.raises(TransformError, match=text):
        pipeline(cpu_layers(), **{**WIRE, **parameters})


def test_jobs_that_cannot_be_pipelines_are_refused() -> None:
    """Unknown batch, several passes, several ranks."""
    nameless = replace(cpu_layers(), meta=replace(cpu_layers().meta, batch_size=None))
    for graph, text in (
        (nameless, "does not say its batch size; give recorded="),
        (gradient_accumulation(cpu_layers(), k=2), "runs forward again"),
        (cpu_job(), "names no modules"),
        (piped(cpu_layers(), stages=2, micro_batches=1), "has several ranks already"),
    ):
        with pytest.raises(TransformError, match=text):
            pipeline(graph, stages=2, micro_batches=2, **WIRE)
    changed = pipeline(nameless, stages=2, micro_batches=2, recorded=8, **WIRE)

    c = transfer_ns(changed) + WAKE_NS
    assert replay(without_sharing(changed)).step_ns == 944 * US + 3 * c


def test_many_ranks_and_links_find_their_next_event() -> None:
    """Computing and transfers of eight ranks slow each other; none of them is forgotten."""
    job = cpu_layers(tuple("01234567"))
    changed = pipeline(job, stages=8, micro_batches=8, **WIRE)
    alone, beside = replay(without_sharing(changed)).step_ns, replay(changed).step_ns

    network = changed.state.network
    assert network is not None
    assert network.compute_share < 1
    assert alone < beside < 2 * alone
