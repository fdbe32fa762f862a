"""Layers shared by several devices: which form pairs, what becomes shorter, where sums stand."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

from foretrace.errors import TransformError
from foretrace.graph.check import check
from foretrace.graph.literal import literal
from foretrace.replaying.replay import replay
from foretrace.testing import check_transform
from foretrace.tracer.trace import Device, TraceMeta
from foretrace.transforms.cluster.placement import place_workers
from foretrace.transforms.collectives.cost import collective_cost
from foretrace.transforms.distributed.pipeline.pipeline import pipeline
from foretrace.transforms.distributed.shardable_layers import share_layers
from foretrace.transforms.distributed.tensor_parallel import NAME, tensor_parallel
from tests.support.jobs.layers import cpu_layers
from tests.support.jobs.simple import cpu_job, gpu_job

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foretrace.graph.model import Graph

Operator = tuple[str, str, str]
LINEAR = "aten::linear"


def linear(module: str, inputs: int, outputs: int) -> Operator:
    """Return a layer on 2 x 4 samples."""
    return LINEAR, module, f"[[2,4,{inputs}],[{outputs},{inputs}],[{outputs}]]"


def mixing(module: str, width: int) -> Operator:
    """Return something non-linear."""
    return "aten::gelu", module, f"[[2,4,{width}]]"


MLP = (
    ("aten::layer_norm", "0.norm", "[[2,4,16]]"),
    linear("0.up", 16, 64),
    mixing("0.act", 64),
    linear("0.down", 64, 16),
    ("aten::dropout", "0.drop", "[[2,4,16]]"),
)
ATTENTION = (
    linear("0.q", 16, 16),
    linear("0.k", 16, 16),
    linear("0.v", 16, 16),
    ("aten::scaled_dot_product_attention", "0", "[[2,4,16],[2,4,16],[2,4,16]]"),
    linear("0.out", 16, 16),
)


def job(operators: Sequence[Operator], *, device: bool = False, work: int = 104_000) -> Graph:
    """Return one step: *operators* forward and backward, on a CPU or as launches of kernels."""
    passes = [("forward", each) for each in operators]
    passes += [("backward", each) for each in operators[::-1]]
    tasks: list[Any] = []
    edges: list[Any] = []
    operator, modules = [], []
    for at, (phase, (name, module, _)) in enumerate(passes):
        row = len(tasks)
        tasks.append(("cudaLaunchKernel" if device else name, "launch" if device else "host", 0,
                      5_000 if device else work, phase))  # fmt: skip
        copies = 1
        if device:
            tasks.append((f"kernel<{name}>", "kernel", 1, work, phase))
            edges.append((row, row + 1, "launch", 6_000))
            copies = 2
        operator += [at] * copies
        modules += [module] * copies
    devices = (Device(0, "NVIDIA A100-SXM4-80GB"),) if device else ()
    return literal(
        tasks,
        edges,
        columns={"operator": operator, "module": pd.Categorical(modules)},
        operators={
            "name": [name for _, (name, _, _) in passes],
            "parent": [-1] * len(passes),
            "phase": pd.Categorical([phase for phase, _ in passes]),
            "shapes": [shapes for _, (_, _, shapes) in passes],
            "dtypes": ['["float"]'] * len(passes),
        },
        meta=TraceMeta(format="foretrace", source="literal", batch_size=2, devices=devices),
        wrap=True,
    )


def works(graph: Graph, phase: str) -> list[int]:
    """Return the work of the operators of a phase, in µs, in order."""
    tasks = graph.tasks
    mine = (tasks["phase"] == phase) & tasks["kind"].isin(["host", "kernel"])
    return (tasks["work_ns"][mine & (tasks["work_ns"] > 0)] // 1_000).tolist()


def test_what_is_between_two_layers_is_shared() -> None:
    """104 µs on a CPU: 4 of dispatch and half of 100. Norm and dropout run on every device."""
    changed = check(tensor_parallel(job(MLP), degree=2, network="10Gbps"))

    assert works(changed, "forward") == [104, 54, 54, 54, 104]
    assert works(changed, "backward") == [104, 54, 54, 54, 104]


def test_layers_of_one_input_are_the_first_of_a_pair_together() -> None:
    """Query, key and value by columns, the projection behind attention by rows."""
    sharing = share_layers(job(ATTENTION), 2)

    assert sharing.pairs == ("0.q",)
    assert sharing.share.tolist() == [1.0] * 10


def test_outputs_are_summed_forward_and_gradients_of_inputs_backward() -> None:
    """8 samples of 16 values of 4 bytes each way: after the second layer, after the first's."""
    graph = job(MLP)
    changed = tensor_parallel(graph, degree=2, network="10Gbps")
    placed = place_workers(2, network="10Gbps")
    cost = collective_cost(placed.cluster, placed.devices, "all_reduce", 512)
    sums = changed.tasks[changed.tasks["name"] == NAME]

    assert sums[["bytes", "work_ns"]].to_numpy().tolist() == [[512.0, cost.ns]] * 2
    waits = changed.edges[changed.edges["kind"] == "return"]
    assert waits["src"].tolist() == sums.index.tolist()
    assert replay(changed).step_ns == sum(
        changed.tasks["work_ns"][changed.tasks["lane"] == 0]
    ) + 2 * (cost.ns - 0)


def test_kernels_get_shorter_and_launches_stay() -> None:
    """Half of what is above the floor of 2 µs; sums run on a stream of their own."""
    changed = check(tensor_parallel(job(MLP, device=True), degree=2, network="10Gbps"))
    calls = changed.tasks["name"] == "cudaLaunchKernel"

    assert works(changed, "forward") == [104, 53, 53, 53, 104]
    assert set(changed.tasks["work_ns"][calls]) == {5_000}
    assert changed.lanes[["kind", "role"]].to_numpy().tolist()[-1] == ["stream", "communication"]


def test_what_comes_next_waits_for_the_sum() -> None:
    """On a slow network two sums are most of a step."""
    slow, fast = (
        replay(tensor_parallel(job(MLP, device=True), degree=2, network=rate)).step_ns
        for rate in ("1Mbps", "10Gbps")
    )

    assert slow - fast > 2 * 4_000_000


def test_a_grid_that_does_not_fill_the_device_gets_no_shorter() -> None:
    """A kernel of half a wave forward; of the second layer the loop is shorter."""
    graph = job(MLP, device=True)
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
    graph = job(MLP, device=True, work=3_000)

    assert (
        replay(tensor_parallel(graph, degree=4, network="10Gbps")).step_ns >= replay(graph).step_ns
    )


def test_a_pipeline_of_shared_layers_sums_parts_of_micro_batches() -> None:
    """Half of the batch: half of the bytes, twice as often."""
    layers = [*MLP, *((name, module.replace("0", "1"), shapes) for name, module, shapes in MLP)]
    shared = tensor_parallel(job(layers), degree=2, network="10Gbps")
    changed = check(pipeline(shared, stages=2, micro_batches=2, network="10Gbps", replicas=1))
    sums = changed.tasks[changed.tasks["name"] == NAME]

    assert sums["bytes"].tolist() == [256.0] * 8
    assert changed.meta.world_size == 4
    assert replay(changed).step_ns > 0


def test_a_pipeline_uses_the_cluster_of_its_shared_layers() -> None:
    """Unless it is given another; more machines are taken where they are needed."""
    layers = [*MLP, *((name, module.replace("0", "1"), shapes) for name, module, shapes in MLP)]
    shared = tensor_parallel(job(layers, device=True), degree=2, cluster="dgx-a100")
    changed = pipeline(shared, stages=2, micro_batches=1, replicas=1)
    placed = changed.extra["cluster"]

    assert placed.cluster.name == shared.extra["cluster"].cluster.name
    assert placed.devices == (0, 1, 2, 3)


def test_the_contract_is_kept() -> None:
    """On a CPU and on a device; a degree of 1 changes nothing."""
    for device in (False, True):
        check_transform(tensor_parallel, job(MLP, device=device), degree=2, network="10Gbps")
    graph = job(MLP)

    assert tensor_parallel(graph, degree=1) is graph


def test_inference_has_no_gradients_to_sum() -> None:
    """One sum per pair."""
    graph = job(MLP)
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
        (job(MLP), 0, "degree=0 is out of range"),
        (job(MLP), 3, "degree=3 does not divide the 64 features of"),
        (job(MLP[:3]), 2, "no pair of linear layers with known shapes"),
        (job([linear("a", 16, 16), linear("b", 16, 16)]), 2, "no pair of linear layers"),
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
    shared = tensor_parallel(job(MLP), degree=2, network="1Gbps")

    with pytest.raises(TransformError, match="has several ranks already"):
        tensor_parallel(shared, degree=2, network="1Gbps")


def test_a_pair_without_backward_tasks_is_refused() -> None:
    """Where the sum of its gradients belongs is not known."""
    graph = job(MLP)
    lost = (graph.tasks["phase"] == "backward") & (graph.tasks["module"] == "0.up")
    module = graph.tasks["module"].where(~lost)

    with pytest.raises(TransformError, match="no backward task of"):
        tensor_parallel(
            replace(graph, tasks=graph.tasks.assign(module=module)), degree=2, network="1Gbps"
        )
