"""network: other links under a job of several workers."""

from __future__ import annotations

from typing import Any

import pytest

from foretrace.errors import TransformError
from foretrace.graph.literal import literal
from foretrace.replaying.replay import replay
from foretrace.testing import check_transform
from foretrace.transforms.distributed.ddp.ddp import ddp
from foretrace.transforms.distributed.network import network
from tests.support.jobs.collectives import measured_collectives
from tests.support.jobs.gradients import cpu_job, gpu_job


def test_it_is_as_if_the_job_had_been_put_there() -> None:
    """From 1 Gbit/s to 300 Mbit/s, by text or by factor, up to what a bucket costs beside bytes."""
    job = cpu_job(shapes=["[[1000,250]]"])
    there = ddp(job, workers=2, network="300Mbps")
    here = ddp(job, workers=2, network="1Gbps")
    moved = check_transform(network, here, bandwidth="300Mbps")
    slower = network(here, bandwidth=0.3)

    assert replay(moved).step_ns == pytest.approx(replay(there).step_ns, rel=0.02)
    assert replay(slower).step_ns == replay(moved).step_ns
    assert moved.state.network == there.state.network
    assert moved.notes[-1] == "network: 0.3 Gbit/s between machines"


def test_latency_counts_in_every_hop() -> None:
    """A millisecond more on each of two steps of a ring of two."""
    here = ddp(cpu_job(shapes=["[[1000,250]]"]), workers=2, network="1Gbps")
    far = network(here, latency=1_000)

    assert replay(far).step_ns - replay(here).step_ns >= 1_000_000
    assert far.notes[-1] == "network: 1 Gbit/s between machines, 1000 us"


def test_a_job_on_devices_keeps_what_nccl_does_to_kernels() -> None:
    """It is the device's, not the network's."""
    here = ddp(gpu_job(), workers=16, cluster="dgx-a100")
    moved = network(here, bandwidth="100Gbps")

    assert moved.state.network == here.state.network
    assert replay(moved).step_ns > replay(here).step_ns


def test_the_latency_of_recorded_collectives_stays() -> None:
    """Of 10 and 50 ns the 40 on top pass four times as fast: no latency is above the shortest."""
    graph = measured_collectives()

    changed = check_transform(network, graph, bandwidth=4.0)

    assert changed.tasks["work_ns"].tolist() == [10, 20]
    assert network(graph, bandwidth=1.0).tasks["work_ns"].tolist() == [10, 50]


def test_collectives_of_one_size_are_not_all_latency() -> None:
    """Of 100 us each, 16.85 are what is usual for two ranks; the ends of the range by request."""
    tasks = [("ncclAllReduce", "collective", 0, 100_000, None)] * 2
    graph = literal(tasks, columns={"bytes": [4e6, 4e6]})
    ends = {
        end: network(graph.with_state(latency_end=end), bandwidth=2.0).tasks["work_ns"].tolist()
        for end in ("least", "likely", "most")
    }

    assert ends == {"least": [53_900] * 2, "likely": [58_425] * 2, "most": [68_200] * 2}


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "needs bandwidth=..."),
        ({"bandwidth": "25Gbps"}, "network of this recording is unknown"),
        ({"latency": 5.0}, "network of this recording is unknown"),
        ({"bandwidth": 2.0, "latency": -1.0}, "latency=-1.0 is out of range"),
        ({"bandwidth": 0}, "bandwidth=0 is out of range"),
    ],
)
def test_what_a_recording_does_not_tell_is_asked_for(given: dict[str, Any], text: str) -> None:
    """Factors are all that applies to it."""
    graph = literal([("ncclAllReduce", "collective", 0, 10, None)])

    with pytest.raises(TransformError, match=text):
        network(graph, **given)


def test_a_job_without_communication_has_no_network() -> None:
    """The text says what to put before."""
    with pytest.raises(TransformError, match="no collective; put ddp"):
        network(cpu_job(), bandwidth=2.0)
