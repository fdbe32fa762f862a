"""powersgd: two thin factors per bucket, one after the other, and the products around them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from foretrace.errors import TransformError
from foretrace.replaying.replay import replay
from foretrace.testing import check_transform
from foretrace.transforms.distributed.common.gradients import Gradient
from foretrace.transforms.distributed.ddp.ddp import ddp
from foretrace.transforms.distributed.powersgd import _bucket, powersgd
from tests.support.jobs.sharded import device_job, host_job

if TYPE_CHECKING:
    from foretrace.graph.model import Graph


def job(kind: Any = host_job) -> Graph:
    """Return two workers at 1 Gbit/s with a bucket per layer: 500 x 250 and 1000 x 250."""
    return ddp(kind(), workers=2, network="1Gbps", bucket_cap_mb=0.4)


def of(*shape: int) -> Gradient:
    """Return a gradient of this shape in fp32."""
    size = 4
    for each in shape:
        size *= each
    return Gradient(None, size, 0, 0, 0, None, shape)


def test_factors_travel_one_after_the_other() -> None:
    """Rank 2: 1000 and 250 rows of 2, then 500 and 250; the second factor behind the first."""
    graph = powersgd(job(), rank=2)
    timeline = replay(graph)
    tasks = graph.tasks.assign(start=timeline.start_ns, end=timeline.end_ns)
    sent = tasks[(tasks["name"] == "PowerSGD all_reduce") & (tasks["step"] == 0)]
    ordered = sent.sort_values("start")

    assert ordered["bytes"].tolist() == [8_000, 2_000, 4_000, 2_000]
    products = tasks[tasks["name"] == "PowerSGD second factor"]["work_ns"].unique()
    assert products.tolist() == [100_000 + 16_000, 50_000 + 16_000]


def test_vectors_travel_with_the_first_factor() -> None:
    """A bias, and a matrix that compression would hardly shrink, stay as they are."""
    bucket = _bucket([of(100, 50), of(100), of(4, 3)], rank=1)

    assert bucket == (400, 200, 400 + 48, 20_000, 1)


def test_convolutions_are_matrices_of_their_first_dimension() -> None:
    """64 x (32 x 3 x 3); a rank beyond the matrix is cut."""
    assert _bucket([of(64, 32, 3, 3)], rank=4)[:2] == (64 * 16, 288 * 16)
    assert _bucket([of(2, 1000)], rank=5).rest == 8_000


def test_bucket_of_vectors_makes_one_all_reduce() -> None:
    """Nothing to multiply: the all-reduce stays alone."""
    recorded = host_job()
    shapes = (
        recorded.operators["shapes"]
        .astype(object)
        .map(lambda text: text and "[[125000]]" if text == "[[500, 250]]" else text)
    )
    known = {**recorded.meta.extra}
    known["parameters"] = [["layers.0.weight", [125_000], 4], ["layers.1.weight", [1000, 250], 4]]
    graph = replace(
        recorded,
        operators=recorded.operators.assign(shapes=shapes.astype("category")),
        meta=replace(recorded.meta, extra=known),
    )
    changed = powersgd(ddp(graph, workers=2, network="1Gbps", bucket_cap_mb=0.4))
    sent = changed.tasks[(changed.tasks["kind"] == "collective") & (changed.tasks["step"] == 0)]

    assert sorted(sent["bytes"]) == [1_000, 4_000, 500_000]


def test_vectors_alone_travel_as_they_are() -> None:
    """No bucket has a matrix in it: nothing is multiplied."""
    recorded = host_job()
    shapes = (
        recorded.operators["shapes"]
        .astype(object)
        .map({"[[500, 250]]": "[[125000]]", "[[1000, 250]]": "[[250000]]"})
    )
    plain = replace(
        recorded,
        operators=recorded.operators.assign(shapes=shapes.astype("category")),
        meta=replace(recorded.meta, extra={}),
    )
    changed = powersgd(ddp(plain, workers=2, network="1Gbps"))

    assert "PowerSGD second factor" not in set(changed.tasks["name"])
    assert changed.notes[-1] == "powersgd: rank 1, 3 MB travel instead of 3 in 2 steps"


def test_buckets_of_other_bytes_cannot_be_told() -> None:
    """After the fp16 hook a bucket has half the bytes of its gradients."""
    halved = ddp(host_job(), workers=2, network="1Gbps", compression="fp16")

    with pytest.raises(TransformError, match="powersgd cannot tell which parameters"):
        powersgd(halved)


def test_update_waits_for_the_second_factor() -> None:
    """Gradients are multiplied out of both factors."""
    for kind, update in ((host_job, "update"), (device_job, "update_kernel")):
        graph = powersgd(job(kind))
        timeline = replay(graph)
        names, steps = graph.tasks["name"].astype(str), graph.tasks["step"]
        sent, restored, updated = (
            graph.tasks.index[(names == name) & (steps == 1)]
            for name in ("PowerSGD all_reduce", "PowerSGD restore", update)
        )

        assert timeline.end_ns[sent].max() <= timeline.start_ns[restored].max()
        assert timeline.end_ns[restored].max() <= timeline.start_ns[updated].min()


def test_slow_network_gains() -> None:
    """11 kB instead of 1.5 MB at 100 Mbit/s."""
    slow = ddp(host_job(), workers=2, network="100Mbps")

    assert replay(powersgd(slow)).step_ns < replay(slow).step_ns / 2


def test_shapes_must_be_known() -> None:
    """A total of the gradients says nothing about matrices."""
    recorded = host_job()
    plain = replace(recorded, meta=replace(recorded.meta, extra={}))
    graph = ddp(plain, workers=2, network="1Gbps", gradient_mb=3)
    again = replace(graph, operators=graph.operators.iloc[:0])

    with pytest.raises(TransformError, match="does not tell how large the gradients are"):
        powersgd(replace(again, tasks=again.tasks.assign(operator=-1)))
    with pytest.raises(TransformError, match="rank=0 is out of range"):
        powersgd(graph, rank=0)


@pytest.mark.parametrize("kind", [host_job, device_job])
def test_contract(kind: Any) -> None:
    """Input untouched, output valid, the same twice, labelled and explained."""
    changed = check_transform(powersgd, job(kind), rank=1)

    assert changed.notes[-1] == "powersgd: rank 1, 0.016 MB travel instead of 3 in 2 steps"
