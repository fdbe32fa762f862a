"""fsdp: when units are gathered and scattered, who waits for them, and what it adds to a step."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from foretrace.errors import TransformError
from foretrace.graph.shared_links import Network
from foretrace.replaying.replay import replay
from foretrace.testing import check_transform
from foretrace.transforms.cluster.presets import ethernet
from foretrace.transforms.collectives.cost import collective_cost
from foretrace.transforms.distributed.ddp.ddp import ddp
from foretrace.transforms.distributed.fsdp import fsdp
from tests.support.jobs.sharded import STEP_NS, device_job, host_job

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

LAYER_0, LAYER_1 = 500_000, 1_000_000
ISSUE_NS = 6_000
WAKE_NS = 2_000_000  # half a tick, after each collective
SAVED_NS = 150_000  # half of the update, beside what 4 µs an operator cost whatever its size


def cost(kind: str, size: int) -> int:
    """Return what a collective costs between two hosts at 1 Gbit/s."""
    return collective_cost(ethernet(2, 1.0), (0, 1), kind, size).ns


def spans(graph: Graph, name: str) -> list[tuple[int, int]]:
    """Return start and end of the tasks called *name*, in order of their start."""
    timeline = replay(graph)
    rows = graph.tasks.index[graph.tasks["name"].astype(str) == name]
    return sorted(
        zip(timeline.start_ns[rows].tolist(), timeline.end_ns[rows].tolist(), strict=True)
    )


@pytest.mark.parametrize(
    ("stage", "gathers", "scatter"),
    [(3, 2, "reduce_scatter"), (2, 1, "reduce_scatter"), (1, 1, "all_reduce")],
)
def test_on_a_cpu_every_collective_adds_to_the_step(stage: int, gathers: int, scatter: str) -> None:
    """The host waits for each, copies out what was gathered and in what is scattered."""
    changed = fsdp(host_job(), workers=2, network="1Gbps", stage=stage)
    sizes = LAYER_0, LAYER_1
    moved = sum(gathers * cost("all_gather", size) + cost(scatter, size) for size in sizes)
    copies = (gathers + 1) * 3 * sum(sizes) // 10  # and half as a share, at 10 GB/s

    calls = 2 * (gathers + 1) * ISSUE_NS
    python = 2 * 450_000  # of the two parameters
    waking = 2 * (gathers + 1) * WAKE_NS
    assert replay(changed).step_ns == STEP_NS - SAVED_NS + moved + copies + calls + python + waking


def test_gathers_ahead_hide_behind_the_layer_before() -> None:
    """Three gathers hide: behind 1.15 ms and 2.3 ms of layer and copy, the last one entirely.

    Their calls cost nothing any more, and the host wakes while the next one is under way. Computing
    is slower meanwhile, where the cluster says so.
    """
    apart, beside = (
        [
            replay(
                fsdp(host_job(), workers=2, network="1Gbps", prefetch=units).with_state(
                    network=slow
                )
            )
            for units in (0, 1)
        ]
        for slow in (Network(), Network(members=((1, 0),), compute_share=0.5, slowed=("host",)))
    )

    hidden = 1_150_000 + 2_300_000 + cost("all_gather", LAYER_0)
    hidden += 3 * (ISSUE_NS + WAKE_NS)
    assert apart[0].step_ns - apart[1].step_ns == hidden
    assert beside[0].step_ns == apart[0].step_ns
    assert beside[1].step_ns > apart[1].step_ns


def test_streams_of_a_device_wait_for_each_other() -> None:
    """A layer waits for its gather, a scatter for its gradient, the update for the last scatter."""
    graph = fsdp(device_job(), workers=2, network="10Gbps")
    gathers, scatters = spans(graph, "FSDP all_gather"), spans(graph, "FSDP reduce_scatter")
    kernels, updates = spans(graph, "mm_kernel"), spans(graph, "update_kernel")

    assert [len(each) for each in (gathers, scatters, kernels, updates)] == [8, 4, 8, 2]
    for step in range(2):
        for kernel, gather in zip(
            kernels[4 * step :], gathers[4 * step : 4 * step + 4], strict=False
        ):
            assert kernel[0] >= gather[1]
        assert updates[step][0] >= scatters[2 * step + 1][1]
    assert gathers[4][0] >= updates[0][1]
    assert gathers[1][0] < kernels[0][1]


def test_device_without_an_optimizer_scatters_all_the_same() -> None:
    """Nothing waits for the last scatter but the gathers of the next step, on the same stream."""
    job = device_job()
    phase = job.tasks["phase"].astype(object).replace("optimizer", "other")
    graph = fsdp(replace(job, tasks=job.tasks.assign(phase=phase.astype("category"))),
                 workers=2, network="10Gbps")  # fmt: skip

    assert len(spans(graph, "FSDP reduce_scatter")) == 4


def test_one_worker_shards_nothing() -> None:
    """The job stays as it is."""
    job = host_job()

    assert fsdp(job, workers=1, network="1Gbps") is job


def test_slowest_of_the_workers_is_waited_for() -> None:
    """Steps that vary by 2 ms: the last collective of each step comes later on average."""
    job = replace(host_job(), step_samples_ns=(9_000_000, 11_000_000) * 4)
    late = replay(fsdp(job, workers=2, network="1Gbps")).step_ns
    even = replay(fsdp(host_job(), workers=2, network="1Gbps")).step_ns

    assert late - even == 500_000


@pytest.mark.parametrize(
    ("job", "changes", "text"),
    [
        (host_job, {"workers": 0}, "workers=0 is out of range"),
        (host_job, {"stage": 4}, "stage=4 is unknown; choose 1, 2 or 3"),
        (host_job, {"network": None}, "nothing says what joins 2 workers"),
        (host_job, {"cluster": "dgx-a100"}, "joins devices, and this is a CPU job"),
        (host_job, {"prefetch": -1}, "prefetch=-1 is out of range"),
        (host_job, {"wrap": "layer"}, "no module matching 'layer'"),
        (device_job, {"cluster": "dgx-a100", "workers": 9, "network": None}, "9 workers"),
    ],
)
def test_absurd_input_gets_one_sentence(job: Any, changes: dict[str, Any], text: str) -> None:
    """The text names what is wrong."""
    with pytest.raises(TransformError, match=text):
        fsdp(job(), **{"workers": 2, "network": "1Gbps", **changes})


def test_a_job_of_several_workers_is_refused() -> None:
    """It has its collectives already."""
    with pytest.raises(
        TransformError, match="fsdp starts from the recording of a job on one worker"
    ):
        fsdp(ddp(host_job(), workers=2, network="1Gbps"), workers=2, network="1Gbps")


@pytest.mark.parametrize("job", [host_job, device_job])
def test_contract(job: Any) -> None:
    """Input untouched, output valid, the same twice, labelled and explained."""
    changed = check_transform(fsdp, job(), workers=4, network="1Gbps")

    assert changed.meta.world_size == 4
    assert changed.notes[0] == (
        "fsdp: 2 units, 1.5 MB of parameters, on 4 workers of 4 ranks at 1 Gbit/s; stage 3, "
        f"gathered {int(job is device_job)} units ahead"
    )
