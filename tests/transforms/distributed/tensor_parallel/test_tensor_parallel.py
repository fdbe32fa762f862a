"""Layers shared by several devices: which form pairs, what becomes shorter, where sums stand."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from foretrace.errors import TransformError
from foretrace.graph.check import check
from foretrace.graph.literal import literal
from foretrace.replaying.replay import replay
from foretrace.transforms.cluster.placement import place_workers
from foretrace.transforms.collectives.cost import collective_cost
from foretrace.transforms.distributed.common.blocking_host import wake_ns
from foretrace.transforms.distributed.pipeline.pipeline import pipeline
from foretrace.transforms.distributed.tensor_parallel.shardable_layers import share_layers
from foretrace.transforms.distributed.tensor_parallel.tensor_parallel import NAME, tensor_parallel
from tests.support.jobs.layers import cpu_layers
from tests.support.jobs.modules import ATTENTION, MLP, forward_and_backward, linear
from tests.support.jobs.simple import cpu_job, gpu_job

if TYPE_CHECKING:
    from foretrace.graph.model import Graph


def works(graph: Graph, phase: str) -> list[int]:
    """Return the work of the operators of a phase, in µs, in order."""
    tasks = graph.tasks
    mine = (tasks["phase"] == phase) & tasks["kind"].isin(["host", "kernel"])
    return (tasks["work_ns"][mine & (tasks["work_ns"] > 0)] // 1_000).tolist()


def test_what_is_between_two_layers_is_shared() -> None:
    """104 µs on a CPU: 4 of dispatch and half of 100. Norm and dropout run on every device."""
    changed = check(tensor_parallel(forward_and_backward(MLP), degree=2, network="10Gbps"))

    assert works(changed, "forward") == [104, 54, 54, 54, 104]
    assert works(changed, "backward") == [104, 54, 54, 54, 104]


def test_layers_of_one_input_are_the_first_of_a_pair_together() -> None:
    """Query, key and value by columns, the projection behind attention by rows."""
    sharing = share_layers(forward_and_backward(ATTENTION), 2)

    assert sharing.pairs == ("0.q",)
    assert sharing.share.tolist() == [1.0] * 10


def test_outputs_are_summed_forward_and_gradients_of_inputs_backward() -> None:
    """8 samples of 16 values of 4 bytes each way: after the second layer, after the first's."""
    graph = forward_and_backward(MLP)
    changed = tensor_parallel(graph, degree=2, network="10Gbps")
    placed = place_workers(2, network="10Gbps")
    cost = collective_cost(placed.cluster, placed.devices, "all_reduce", 512)
    sums = changed.tasks[changed.tasks["name"] == NAME]

    assert sums[["bytes", "work_ns"]].to_numpy().tolist() == [[512.0, cost.ns]] * 2
    waits = changed.edges[changed.edges["kind"] == "return"]
    assert waits["src"].tolist() == sums.index.tolist()
    computed = sum(changed.tasks["work_ns"][changed.tasks["lane"] == 0])
    assert replay(changed).step_ns == computed + 2 * (cost.ns + wake_ns(placed.cluster))


def test_kernels_get_shorter_and_launches_stay() -> None:
    """Half of what is above the floor of 2 µs; sums run on a stream of their own."""
    changed = check(
        tensor_parallel(forward_and_backward(MLP, device=True), degree=2, network="10Gbps")
    )
    calls = changed.tasks["name"] == "cudaLaunchKernel"

    assert works(changed, "forward") == [104, 53, 53, 53, 104]
    assert set(changed.tasks["work_ns"][calls]) == {5_000}
    assert changed.lanes[["kind", "role"]].to_numpy().tolist()[-1] == ["stream", "communication"]


def test_what_comes_next_waits_for_the_sum() -> None:
    """On a slow network two sums are most of a step."""
    slow, fast = (
        replay(
            tensor_parallel(forward_and_backward(MLP, device=True), degree=2, network=rate)
        ).step_ns
        for rate in ("1Mbps", "10Gbps")
    )

    assert slow - fast > 2 * 4_000_000


def test_a_grid_that_does_not_fill_the_device_gets_no_shorter() -> None:
    """A kernel of half a wave forward; of the second layer the loop is shorter."""
    graph = forward_and_backward(MLP, device=True)
    graph = replace(graph, tasks=graph.tasks.assign(fill=0.5))

    assert works(tensor_parallel(graph, degree=2, network="10Gbps"), "forward") == [
        104,
        104,
        104,
        53,
        104,
    ]


def test_a_job_that_the_host_holds_up_gains_nothing() -> None:
    """Kernels of 3 µs under launches of 5."""
    graph = forward_and_backward(MLP, device=True, work=3_000)

    assert (
        replay(tensor_parallel(graph, degree=4, network="10Gbps")).step_ns >= replay(graph).step_ns
    )


def test_a_pipeline_of_shared_layers_sums_parts_of_micro_batches() -> None:
    """Half of the batch: half of the bytes, twice as often."""
    layers = [*MLP, *((name, module.replace("0", "1"), shapes) for name, module, shapes in MLP)]
    shared = tensor_parallel(forward_and_backward(layers), degree=2, network="10Gbps")
    changed = check(pipeline(shared, stages=2, micro_batches=2, network="10Gbps", replicas=1))
    sums = changed.tasks[changed.tasks["name"] == NAME]

    assert sums["bytes"].tolist() == [256.0] * 8
    assert changed.meta.world_size == 4
    assert replay(changed).step_ns > 0


def test_a_pipeline_uses_the_cluster_of_its_shared_layers() -> None:
    """Unless it is given another; more machines are taken where they are needed."""
    layers = [*MLP, *((name, module.replace("0", "1"), shapes) for name, module, shapes in MLP)]
    shared = tensor_parallel(
        forward_and_backward(layers, device=True), degree=2, cluster="dgx-a100"
    )
    changed = pipeline(shared, stages=2, micro_batches=1, replicas=1)
    placed = changed.state.workers

    assert placed.cluster.name == shared.state.workers.cluster.name
    assert placed.devices == (0, 1, 2, 3)


def test_one_device_changes_nothing() -> None:
    """No network is needed for that."""
    graph = forward_and_backward(MLP)

    assert tensor_parallel(graph, degree=1) is graph


def test_inference_has_no_gradients_to_sum() -> None:
    """One sum per pair."""
    graph = forward_and_backward(MLP)
    forward = (graph.tasks["phase"] == "forward").to_numpy()
    lonely = literal(
        [(str(n), "host", 0, 104_000, "forward") for n in graph.tasks["name"][forward]],
        columns={"operator": np.arange(5), "module": graph.tasks["module"].array[forward]},
        operators={name: graph.operators[name].array[:5] for name in
                   ("name", "parent", "phase", "shapes", "dtypes")},
    )  # fmt: skip
    changed = tensor_parallel(lonely, degree=2, network="10Gbps")

    assert (changed.tasks["name"] == NAME).sum() == 1


@pytest.mark.parametrize(
    ("graph", "degree", "text"),
    [
        (forward_and_backward(MLP), 0, "degree=0 is out of range"),
        (forward_and_backward(MLP), 3, "degree=3 does not divide the 64 features of"),
        (forward_and_backward(MLP[:3]), 2, "no pair of linear layers with known shapes"),
        (
            forward_and_backward([linear("a", 16, 16), linear("b", 16, 16)]),
            2,
            "no pair of linear layers",
        ),
        (cpu_layers(), 2, "no pair of linear layers"),
        (gpu_job(), 2, "names no modules"),
        (cpu_job(), 2, "names no modules"),
    ],
)
def test_layers_that_cannot_be_shared_are_refused(graph: Graph, degree: int, text: str) -> None:
    """One sentence each."""
    with pytest.raises(TransformError, match=text):
        tensor_parallel(graph, degree=degree, network="1Gbps")


def test_other_degrees_come_later() -> None:
    """A pair inside a job of several ranks would be summed by the wrong ones."""
    shared = tensor_parallel(forward_and_backward(MLP), degree=2, network="1Gbps")

    with pytest.raises(TransformError, match="has several ranks already"):
        tensor_parallel(shared, degree=2, network="1Gbps")


def test_a_pair_without_backward_tasks_is_refused() -> None:
    """Where the sum of its gradients belongs is not known."""
    graph = forward_and_backward(MLP)
    lost = (graph.tasks["phase"] == "backward") & (graph.tasks["module"] == "0.up")
    module = graph.tasks["module"].where(~lost)

    with pytest.raises(TransformError, match="no backward task of"):
        tensor_parallel(
            replace(graph, tasks=graph.tasks.assign(module=module)), degree=2, network="1Gbps"
        )
