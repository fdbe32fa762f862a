"""DDP over NCCL on a small job on a device: kernels, streams, waits, and what a step takes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from foretrace.errors import TransformError
from foretrace.graph.check import check
from foretrace.replaying.replay import replay
from foretrace.transforms.batching.gradient_accumulation import gradient_accumulation
from foretrace.transforms.cluster.presets import load_cluster
from foretrace.transforms.collectives.cost import collective_cost
from foretrace.transforms.distributed.common.overlap import (
    OVERLAP,
    TRANSFER_SHARE,
    overlap_share,
)
from foretrace.transforms.distributed.ddp.ddp import ddp
from tests.support.jobs.gradients import MS, gpu_job

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

CLUSTER = "dgx-a100"
STREAM, NCCL = 2, 3


def changed(graph: Graph, **parameters: Any) -> Graph:
    """Return *graph* with four workers of a DGX A100, or as *parameters* say."""
    return check(ddp(graph, **{"workers": 4, "cluster": CLUSTER, **parameters}))


def names(graph: Graph, lane: int) -> list[str]:
    """Return the tasks of a lane in the order in which they run."""
    order = np.argsort(replay(graph).start_ns, kind="stable")
    return [str(graph.tasks["name"].iloc[i]) for i in order if graph.tasks["lane"].iloc[i] == lane]


def span(graph: Graph, name: str) -> list[tuple[int, int]]:
    """Return start and end of the tasks of a name."""
    timeline = replay(graph)
    rows = np.flatnonzero((graph.tasks["name"] == name).to_numpy())
    return [(int(timeline.start_ns[r]), int(timeline.end_ns[r])) for r in rows]


def all_reduce_ns(size: int, workers: int = 4) -> int:
    """Return what an all-reduce of *size* bytes costs alone."""
    return collective_cost(load_cluster(CLUSTER), range(workers), "all_reduce", size).ns


def test_gradients_are_copied_reduced_and_copied_back() -> None:
    """One bucket of two gradients; the update waits for the copies behind it."""
    graph = changed(gpu_job(), bucket_cap_mb=25.0)

    assert names(graph, STREAM) == [
        "fwd", "fwd", "bwd", "DDP copy to bucket", "bwd", "DDP copy to bucket",
        "DDP copy from bucket", "DDP copy from bucket", "update",
    ]  # fmt: skip
    assert names(graph, NCCL) == ["DDP all_reduce"]
    (begin, end), out = *span(graph, "DDP all_reduce"), span(graph, "DDP copy from bucket")
    assert begin == span(graph, "DDP copy to bucket")[1][1]
    assert end - begin == pytest.approx(all_reduce_ns(2_000_000), abs=2)
    assert out[0][0] >= end


def test_a_small_bucket_runs_under_backward_and_both_are_slowed() -> None:
    """The first all-reduce begins behind the first gradient; the next kernel keeps 0.58 of it."""
    graph = changed(gpu_job(), bucket_cap_mb=0.5)
    first, second = span(graph, "DDP all_reduce")
    kernel = span(graph, "bwd")[1]

    assert kernel[0] < first[1] < kernel[1]
    under = first[1] - kernel[0]
    assert kernel[1] - kernel[0] == pytest.approx(MS + under * (1 - 0.58), rel=0.01)
    assert first[1] - first[0] > all_reduce_ns(1_000_000)
    assert second[0] > kernel[1]


def test_with_a_view_the_update_itself_waits() -> None:
    """No copies out, the next kernel on the stream starts behind the transfer."""
    graph = changed(gpu_job(), gradient_as_bucket_view=True)

    assert "DDP copy from bucket" not in names(graph, STREAM)
    assert span(graph, "update")[0][0] >= span(graph, "DDP all_reduce")[0][1]


def test_where_backward_ends_the_window_the_next_step_waits() -> None:
    """A job without an update: the wait lies one repetition later."""
    job = gpu_job()
    keep = (job.tasks["name"] != "update").to_numpy()
    from foretrace.transforms.edit.remove import remove

    graph = changed(remove(job, ~keep), gradient_as_bucket_view=True)
    waits = graph.edges[(graph.edges["kind"] == "event") & (graph.edges["shift"] == 1)]

    assert len(waits) == 1
    assert graph.tasks["name"].iloc[int(waits["src"].iloc[0])] == "DDP all_reduce"
    assert graph.tasks["name"].iloc[int(waits["dst"].iloc[0])] == "fwd"


@pytest.mark.parametrize("compression", ["fp16", "bf16"])
def test_compression_casts_on_the_device_and_halves_the_bytes(compression: str) -> None:
    """One kernel before the all-reduce, one behind it."""
    graph = changed(gpu_job(), compression=compression, bucket_cap_mb=25.0)

    assert graph.tasks["bytes"][graph.tasks["name"] == "DDP all_reduce"].tolist() == [1_000_000.0]
    assert names(graph, STREAM)[6:9] == ["DDP compress", "DDP decompress", "DDP copy from bucket"]


def test_copies_move_two_passes_at_the_device_s_memory_rate() -> None:
    """16 MB at 1,555 GB/s x 0.85; an unknown device is taken for a V100."""
    known = changed(gpu_job(), parameters=[8, 8])
    unknown = changed(gpu_job(device="Mystery"), parameters=[8, 8])
    copy = [
        g.tasks.loc[g.tasks["name"] == "DDP copy to bucket", ["work_ns", "cost"]].values.tolist()[0]
        for g in (known, unknown)
    ]

    assert copy == [
        [round(16e6 / (1_555 * 0.85)), "roofline"],
        [round(16e6 / (900 * 0.85)), "prior"],
    ]


def test_buffers_are_sent_packed_and_copied_one_by_one() -> None:
    """Two buffers: a broadcast and two copies before the forward pass."""
    job = gpu_job()
    extra = {"buffers": [["norm.running_mean", [64], 4], ["norm.running_var", [64], 4]]}
    graph = changed(replace(job, meta=replace(job.meta, extra=extra)))

    assert names(graph, STREAM)[:4] == ["DDP broadcast buffers"] * 3 + ["fwd"]


def test_batch_norms_tell_their_buffers_where_nothing_was_recorded() -> None:
    """Running mean and variance are inputs 3 and 4 of the operator."""
    from foretrace.transforms.distributed.ddp.plan import buffers_of

    job = gpu_job(steps=2)
    norm = job.operators.assign(
        name="aten::batch_norm",
        shapes="[[8,64,9,9],[64],[64],[64],[64],[]]",
    ).astype({"name": "category", "shapes": "category"})

    assert buffers_of(replace(job, operators=norm)) == (256, 256, 256, 256)
    assert buffers_of(job) == ()


def test_every_step_is_changed_alike() -> None:
    """The period of three recorded steps is that of one."""
    one, three = (replay(changed(gpu_job(steps=n))).step_ns for n in (1, 3))

    assert three == pytest.approx(one, rel=1e-3)


def test_the_slowest_worker_delays_each_all_reduce() -> None:
    """Recorded steps of 5 and 9 ms: of four the last is 1.75 ms behind at the end, here at 8/11."""
    job = gpu_job(steps=1)
    varied = replace(job, step_samples_ns=(5 * MS, 9 * MS) * 4)
    graph = changed(varied)
    late = span(graph, "DDP all_reduce")[0][0] - span(graph, "DDP copy to bucket")[-1][1]

    assert late == round(1.75 * MS * 8 / 11)


def test_accumulation_exchanges_once_in_either_order() -> None:
    """One all-reduce per step, the same period."""
    job = gpu_job()
    one, other = changed(gradient_accumulation(job, k=3)), gradient_accumulation(changed(job), k=3)

    assert (check(other).tasks["kind"] == "collective").sum() == 1
    assert (one.tasks["kind"] == "collective").sum() == 1
    assert replay(other).step_ns == pytest.approx(replay(one).step_ns, rel=0.02)


def test_unknown_launches_are_refused() -> None:
    """Where the backward kernels come from nobody knows."""
    job = gpu_job()
    edges = job.edges
    drop = (edges["kind"] == "launch") & (edges["dst"] > 4) & (edges["dst"] < 9)
    job = replace(job, edges=edges[~drop].reset_index(drop=True))

    with pytest.raises(TransformError, match="launches of this trace's backward kernels"):
        changed(job, parameters=[1], gradient_mb=None)


def test_what_nccl_leaves_to_kernels_is_known_of_some_devices() -> None:
    """An A100's figure comes from the table and serves for others."""
    network = changed(gpu_job()).state.network

    assert network is not None
    assert (network.compute_share, network.transfer_share) == (0.58, TRANSFER_SHARE)
    assert network.members == ((NCCL, 0),)
    assert overlap_share(gpu_job(device="Mystery")) == OVERLAP.value
    assert "of the A100 only" in " ".join(changed(gpu_job(device="Tesla V100-SXM2-16GB")).notes)
