"""ddp as users call it: what it says, what it refuses, what it hands on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from foretrace.analysis.prediction import predict
from foretrace.errors import TransformError
from foretrace.replaying.replay import replay
from foretrace.testing import check_transform
from foretrace.transforms.costs.assumed import read_as
from foretrace.transforms.distributed.ddp.ddp import BESIDE, ddp
from foretrace.transforms.distributed.powersgd import powersgd
from foretrace.transforms.scenario import parse_scenario
from tests.support.jobs import simple
from tests.support.jobs.gradients import accumulating_job, cpu_job, gpu_job, passes_job


def test_one_worker_is_the_job_as_it_is() -> None:
    """No network is needed for it."""
    job = cpu_job()

    assert ddp(job, workers=1) is job


def test_the_notes_say_bytes_buckets_and_lateness() -> None:
    """What every prediction shows."""
    changed = check_transform(ddp, cpu_job(), workers=2, network="1Gbps")

    assert changed.notes == (
        "ddp: 2 workers on 2 ranks at 1 Gbit/s (one in each machine) add up 2.001 MB",
        "ddp: all-reduces per step: 1, the first as ring",
        "ddp: the slowest worker is 0 ms behind at the end of a step",
    )
    assert changed.meta.world_size == 2
    assert changed.state.workers.devices == (0, 1)


def test_sizes_that_were_given_are_said_to_be() -> None:
    """The trace tells none."""
    changed = ddp(simple.gpu_job(), workers=8, cluster="dgx-a100", gradient_mb=100)

    assert "ddp: sizes of gradients are given; they become ready evenly" in changed.notes


def test_calls_to_communicate_alone_are_no_communication() -> None:
    """DDP with one worker calls all_reduce, which launches no kernel."""
    job = simple.gpu_job()
    names = job.tasks["name"].astype(str).to_numpy(copy=True)
    names[np.flatnonzero(job.tasks["kind"] == "host")[0]] = "c10d::allreduce_"
    recorded = replace(job, tasks=job.tasks.assign(name=pd.Categorical(names)))

    assert ddp(recorded, workers=8, cluster="dgx-a100", gradient_mb=100).meta.world_size == 8


def test_workers_of_one_machine_may_share_more_than_links() -> None:
    """The interval's end: a quarter of a step; workers alone in their machines share nothing."""

    def change(**network: Any) -> float:
        steps_ns = []
        for end in BESIDE.ends:
            with read_as(BESIDE, end):
                changed = ddp(simple.gpu_job(), workers=2, gradient_mb=1.0, **network)
            steps_ns.append(replay(changed).step_ns)
        return steps_ns[1] / steps_ns[0]

    assert change(cluster="dgx-a100") > 1.05
    assert change(network="25Gbps") == 1.0


def test_more_workers_on_a_slower_network_take_longer() -> None:
    """2 and 8 workers, 10 and 1 Gbit/s."""
    steps = {
        (n, rate): replay(ddp(cpu_job(), workers=n, network=rate)).step_ns
        for n in (2, 8)
        for rate in ("10Gbps", "1Gbps")
    }

    assert steps[2, "10Gbps"] < steps[2, "1Gbps"] < steps[8, "1Gbps"]
    assert steps[2, "10Gbps"] < steps[8, "10Gbps"]


def test_a_large_cluster_is_as_large_a_graph_as_a_small_one() -> None:
    """Workers are alike: one of them is simulated."""
    small, large = (ddp(gpu_job(), workers=n, cluster="dgx-a100") for n in (8, 1024))

    assert len(small.tasks) == len(large.tasks)
    assert replay(large).step_ns > replay(small).step_ns


def test_the_command_line_reads_it() -> None:
    """Text, numbers, lists."""
    given = "bucket_cap_mb=4, parameters=[1, 2], placement=[2, 0, 1]"
    (what_if,) = parse_scenario([f"ddp(workers=3, network='25Gbps', {given})"])

    assert what_if(cpu_job(shapes=[None] * 2)).state.workers.devices == (2, 0, 1)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"workers": 0, "network": "1Gbps"}, "workers=0 is out of range"),
        ({"workers": 2}, "nothing says what joins 2 workers"),
        (
            {"workers": 2, "network": "1Gbps", "compression": "zip"},
            "choose one of fp16, bf16, powersgd",
        ),
        ({"workers": 2, "network": "1Gbps", "compression": "bf16"}, "gloo adds up no bf16"),
        ({"workers": 2, "network": "1Gbps", "backend": "nccl"}, "on CPUs it is gloo"),
        ({"workers": 2, "network": "1Gbps", "backend": "mpi"}, "choose one of nccl, gloo"),
        ({"workers": 2, "network": "1Gbps", "bucket_cap_mb": 0}, "bucket_cap_mb=0 is out of range"),
        ({"workers": 8, "cluster": "dgx-a100"}, "joins devices, and this is a CPU job"),
    ],
)
def test_a_cpu_job_is_refused_what_gloo_cannot(given: dict[str, Any], text: str) -> None:
    """One sentence each."""
    with pytest.raises(TransformError, match=text):
        ddp(cpu_job(), **given)


def test_a_device_job_is_refused_gloo() -> None:
    """It would copy through the host."""
    with pytest.raises(TransformError, match="on devices it is nccl"):
        ddp(gpu_job(), workers=2, cluster="dgx-a100", backend="gloo")


def test_workers_are_given_once() -> None:
    """A second ddp would add up twice."""
    changed = ddp(cpu_job(), workers=2, network="1Gbps")

    with pytest.raises(TransformError, match="given workers already"):
        ddp(changed, workers=4, network="1Gbps")


def test_old_versions_of_torch_keep_the_first_bucket_small() -> None:
    """The recording names its framework."""
    counts = []
    for framework in ("torch 2.13.0", "torch 1.13.0"):
        job = cpu_job(shapes=["[[1000,300]]", "[[1000,300]]"])
        job = replace(job, meta=replace(job.meta, framework=framework))
        changed = ddp(job, workers=2, network="1Gbps", bucket_cap_mb=25)
        counts.append(int((changed.tasks["kind"] == "collective").sum()))

    assert counts == [1, 2]


def test_a_cluster_of_other_devices_lends_its_links_only() -> None:
    """Kernels stay as recorded; `device` is the what-if that changes them."""
    same, other = (
        ddp(gpu_job(), workers=4, cluster=name) for name in ("perlmutter-2022", "dgx-h100")
    )

    assert not any("only the links" in note for note in same.notes)
    assert any("A100-SXM4-40GB; of dgx-h100" in note for note in other.notes)


def test_a_rank_of_a_gloo_job_is_refused() -> None:
    """Its transfers are annotations of other threads; the waits for them have no event."""
    job = cpu_job()
    names = job.operators["name"].cat.rename_categories({"aten::mm": "c10d::allreduce_"})
    tasks = job.tasks.assign(operator=np.arange(len(job.tasks), dtype=np.int32))
    job = replace(job, tasks=tasks, operators=job.operators.assign(name=names))

    with pytest.raises(TransformError, match="a rank of a gloo job"):
        ddp(job, workers=4, network="1Gbps")


def test_power_sgd_is_the_what_if_of_its_own() -> None:
    """As a compression it has one column per factor."""
    job = cpu_job(shapes=["[[1000,250]]"])
    one = ddp(job, workers=2, network="1Gbps", compression="powersgd")
    other = powersgd(ddp(job, workers=2, network="1Gbps"))

    assert one.tasks["bytes"][one.tasks["kind"] == "collective"].tolist() == [4_000.0, 1_000.0]
    assert one.tasks.equals(other.tasks)


def test_each_worker_has_samples_of_its_own() -> None:
    """Four times as many per step: a speed-up counts samples per second."""
    found = predict(cpu_job(), parse_scenario(["ddp(workers=4, network='25Gbps')"]))

    assert found.samples == 4
    assert 1 < found.speedup < 4


def test_what_is_cast_for_the_wire_is_said_to_be() -> None:
    """Half the bytes of float32 gradients."""
    changed = ddp(cpu_job(), workers=2, network="1Gbps", compression="fp16")

    assert changed.notes[0].endswith("add up 2.001 MB, sent as 1 MB")


def test_two_models_in_one_step_exchange_in_every_pass_they_take_part_in() -> None:
    """A critic alone, then critic and maker: three all-reduces, each before the next update."""
    changed = ddp(passes_job("a", "ab"), workers=2, network="1Gbps", bucket_cap_mb=25)
    line = replay(changed)
    sent = np.flatnonzero(changed.tasks["kind"] == "collective")
    updates = np.flatnonzero(changed.tasks["name"] == "update")

    assert changed.tasks["bytes"].iloc[sent].tolist() == [1e6, 1e6, 2e6]
    assert line.end_ns[sent[0]] <= line.start_ns[updates[0]] < line.start_ns[sent[1]]
    assert line.end_ns[sent[2]] <= line.start_ns[updates[1]]


def test_every_epoch_of_a_step_exchanges() -> None:
    """Passes with an update between them: as many times the bytes."""
    changed = ddp(passes_job("ab", "ab", "ab"), workers=2, network="1Gbps", bucket_cap_mb=25)

    assert changed.tasks["bytes"][changed.tasks["kind"] == "collective"].tolist() == [3e6] * 3


def test_passes_that_only_add_are_doubted_where_nobody_says_what_they_do() -> None:
    """Under no_sync one exchange, else one per pass: the answer spans both, and says so."""
    job = accumulating_job(passes=2)
    doubted, told, every = (
        ddp(job, workers=2, network="1Gbps", no_sync=said) for said in (None, True, False)
    )
    asked = predict(job, parse_scenario(["ddp(workers=2, network='1Gbps')"]))

    assert [doubt.code for doubt in doubted.state.doubts] == ["no-sync-unknown"]
    assert not told.state.doubts
    assert not every.state.doubts
    assert asked.interval_ns[1] >= replay(every).step_ns > replay(told).step_ns
