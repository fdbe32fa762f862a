"""The what-ifs of the Daydream paper that change layers and memory, on graphs written by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from foretrace.errors import TransformError
from foretrace.graph.build import build
from foretrace.graph.check import check
from foretrace.graph.literal import literal
from foretrace.graph.state import MEMORY_PARTS
from foretrace.replaying.replay import replay
from foretrace.testing import check_transform
from foretrace.tracer.readers.load import load
from foretrace.transforms.compute.metaflow.metaflow import metaflow
from foretrace.transforms.compute.reconstruct_batchnorm import reconstruct_batchnorm
from foretrace.transforms.costs.memory_curve import memory_curve
from foretrace.transforms.memory.gist import gist
from foretrace.transforms.memory.vdnn import vdnn
from tests.support.jobs.kernels import batch_norms, projections
from tests.support.jobs.simple import META, cpu_job
from tests.support.paths import PUBLIC

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

RESNET = "hta/resnet50_ddp_v100_ws1_rank0.json.gz"


def convolutions(work: int = 1_000_000, layers: int = 3) -> Graph:
    """Convolutions on inputs of 12 MB, forward and backward, each with its launch."""
    count = 2 * layers
    phases = ["forward"] * layers + ["backward"] * layers
    names = ["scudnn"] * layers + ["scudnn_dgrad"] * layers
    tasks = [("cudaLaunchKernel", "launch", 0, 5_000, phase) for phase in phases]
    tasks += [(name, "kernel", 1, work, p) for name, p in zip(names, phases, strict=True)]
    start = [i * 5_000 for i in range(count)] + [30_000 + i * work for i in range(count)]
    return literal(
        tasks,
        [(i, count + i, "launch") for i in range(count)],
        columns={
            "operator": [-1] * count + [*range(layers)] + [-1] * layers,
            "start_ns": start,
        },
        operators={
            "name": ["aten::conv2d"] * layers,
            "parent": [-1] * layers,
            "phase": ["forward"] * layers,
            "shapes": ["[[30,10,100,100],[10,10,3,3]]"] * layers,
        },
        meta=META,
        wrap=True,
    )


def names_of(graph: Graph, kind: str) -> list[Any]:
    """Return the names of the tasks of one kind."""
    return graph.tasks["name"][graph.tasks["kind"] == kind].tolist()


def edges_of(graph: Graph, kind: str) -> set[tuple[int, int]]:
    """Return the edges of one kind."""
    chosen = graph.edges[graph.edges["kind"] == kind]
    return set(zip(chosen["src"].tolist(), chosen["dst"].tolist(), strict=True))


def test_vdnn_offloads_all_but_the_last() -> None:
    """12 MB at 12 GB/s are 1 ms: out beside the layer that reads, back one layer ahead."""
    graph = check(vdnn(convolutions(), policy="conv"))
    copies = graph.tasks[graph.tasks["kind"] == "memcpy"]

    assert copies["work_ns"].tolist() == [1_001_500] * 4
    assert copies["bytes"].tolist() == [12e6] * 4
    assert [str(name)[:11] for name in copies["name"]] == ["Memcpy DtoH"] * 2 + ["Memcpy HtoD"] * 2
    assert graph.lanes["role"].tolist() == ["main", "compute", "copy", "copy"]
    out, back = (copies.index[copies["lane"] == lane].tolist() for lane in (2, 3))
    assert edges_of(graph, "event") == {
        (6, out[0]),  # nobody knows who wrote the first input: it leaves after its layer
        (6, out[1]),  # the second input is there when the first layer ends
        (out[0], 7),  # the next layer takes the memory of the first
        (out[1], 8),
        (8, back[0]),  # the last layer's backward starts, and the second input comes back
        (9, back[1]),
        (back[0], 10),
        (back[1], 11),
    }


def test_vdnn_costs_nothing_on_a_fast_link_and_the_copies_on_a_slow_one() -> None:
    """Two copies a step in each direction, none of which hides behind 10 us of work."""
    graph = convolutions(10_000)

    assert replay(vdnn(graph, pcie_gbps=1e6)).step_ns < 1.5 * replay(graph).step_ns
    assert replay(vdnn(graph, pcie_gbps=1.2)).step_ns > 4 * 10_000_000


@pytest.mark.parametrize("layers", [3, 10])
def test_vdnn_holds_what_works_and_what_comes_back(layers: int) -> None:
    """12 MB a layer; then those of the layer in backward, and of the one that is fetched ahead.

    In forward only the input of the layer that runs: the next one waits until it has left.
    """
    graph, activations = convolutions(layers=layers), MEMORY_PARTS.index("activations")
    curve = memory_curve(graph)

    assert curve is not None
    assert curve.held[:, activations].max() == layers * 12e6
    held = curve.after(vdnn(graph).state).held[:, activations]
    assert held[:layers].tolist() == [12e6] * layers
    assert held[layers : 2 * layers].tolist() == [24e6] * (layers - 1) + [12e6]


@pytest.mark.parametrize(
    ("graph", "settings", "message"),
    [
        (convolutions(), {"policy": "some"}, "policy='some' is unknown"),
        (convolutions(), {"pcie_gbps": 0.0}, "pcie_gbps=0.0 is out of range"),
        (convolutions(), {"prefetch": 3}, "no layer but the last, which keeps its input"),
        (cpu_job(), {}, "this is a CPU job"),
        (literal([("relu", "kernel", 0, 5, "forward")]), {}, "no activation that lives"),
    ],
)
def test_vdnn_says_why_not(graph: Graph, settings: dict[str, Any], message: str) -> None:
    """One clear error."""
    with pytest.raises(TransformError, match=message):
        vdnn(graph, **settings)


def test_vdnn_needs_sizes() -> None:
    """Neither shapes nor a device that the table has."""
    tasks = [("launch", "launch", 0, 5, p) for p in ("forward", "backward")]
    tasks += [("sgemm", "kernel", 1, 5, p) for p in ("forward", "backward")]
    graph = literal(tasks, [(0, 2, "launch"), (1, 3, "launch")])

    with pytest.raises(TransformError, match="cannot tell how large the activations are"):
        vdnn(graph)


def relu_network() -> Graph:
    """Build a ReLU, a convolution, a pooling and a linear layer, and backward."""
    names = ["relu", "scudnn", "max_pool2d", "sgemm", "sgemm_b", "max_pool2d_b", "scudnn_b"]
    phases = ["forward"] * 4 + ["backward"] * 3
    return literal(
        [(n, "kernel", 0, 50_000, p) for n, p in zip(names, phases, strict=True)],
        columns={"operator": [-1, 0, 1, 2, -1, -1, -1]},
        operators={
            "name": ["aten::conv2d", "aten::max_pool2d", "aten::mm"],
            "parent": [-1] * 3,
            "phase": ["forward"] * 3,
            "shapes": ["[[1000,1000],[5,5]]", "[[1000,1000]]", "[[1000,1000],[9,9]]"],
        },
        meta=META,
    )


def test_gist_encodes_by_what_backward_needs() -> None:
    """Sparse behind a ReLU, one bit for pooling; the linear layer's input stays.

    A convolution's input is there in full as well while it is read.
    """
    graph = check(gist(relu_network(), nonzero=0.4))
    conv, pool, product = 4e6 * 0.5, 6e6 / 32, 4e6

    assert names_of(graph, "kernel")[7:] == [
        "gist encode (predicted)",
        "gist encode (predicted)",
        "gist decode (predicted)",
    ]
    everything = conv + pool + product
    assert activations_after(graph) == pytest.approx(
        [conv + 4e6, conv + pool, everything, everything, conv + pool, conv + 4e6]
    )
    order = edges_of(graph, "stream")
    assert {(1, 7), (7, 2), (2, 8), (8, 3), (5, 9), (9, 6)} <= order


def activations_after(graph: Graph) -> list[float]:
    """Return the bytes of the network's activations as each layer begins, after the what-if."""
    curve = memory_curve(relu_network())
    assert curve is not None
    held = curve.after(graph.state).held[:6, MEMORY_PARTS.index("activations")]
    return list(held.tolist())


def test_gist_may_lose_bits_of_the_rest() -> None:
    """8 bits for the linear layer, 0.4 x (8 + 8) of 32 behind the ReLU."""
    conv, pool, product = 4e6 * 0.2, 6e6 / 32, 4e6 * 0.25
    everything = conv + pool + product

    assert activations_after(gist(relu_network(), nonzero=0.4, lossy_bits=8)) == pytest.approx(
        [conv + 4e6, conv + pool, everything + 4e6, everything + 4e6, conv + pool, conv + 4e6]
    )


@pytest.mark.parametrize(
    ("graph", "settings", "message"),
    [
        (relu_network(), {"nonzero": 1.5}, "give a share of at most 1"),
        (relu_network(), {"lossy_bits": 0}, "lossy_bits=0 is out of range"),
        (cpu_job(), {}, "this is a CPU job"),
        (convolutions(), {}, "no activation of known size that an encoding makes smaller"),
    ],
)
def test_gist_says_why_not(graph: Graph, settings: dict[str, Any], message: str) -> None:
    """One clear error."""
    with pytest.raises(TransformError, match=message):
        gist(graph, **settings)


def test_reconstructed_batch_norms_lose_their_relu() -> None:
    """Half of the norms' time; the ReLU behind the addition and the allocator's call stay."""
    graph = check_transform(reconstruct_batchnorm, batch_norms())
    kernels = graph.tasks[graph.tasks["kind"] == "kernel"]

    assert kernels["name"].tolist() == ["bn_fw", "scudnn", "bn_fw", "add", "clamp", "bn_bw"]
    assert kernels["work_ns"].tolist() == [40_000, 80_000, 40_000, 80_000, 80_000, 40_000]
    assert names_of(graph, "host") == ["hipFree"]
    assert len(names_of(graph, "launch")) == 6
    assert "overpredicts" in graph.notes[-1]


def test_without_batch_norms_there_is_nothing_to_reconstruct() -> None:
    """A layer norm is none."""
    with pytest.raises(TransformError, match="no batch normalisation kernel"):
        reconstruct_batchnorm(literal([("layer_norm", "kernel", 0, 5, "forward")]))
    with pytest.raises(TransformError, match="traffic=2 is out of range"):
        reconstruct_batchnorm(batch_norms(), traffic=2)


def test_siblings_become_one_layer() -> None:
    """Per block three products become one, as long as all less two floors of 2 us."""
    graph = check_transform(metaflow, projections(), merge="q|k|v")
    kernels = graph.tasks[graph.tasks["kind"] == "kernel"]

    assert kernels["module"].tolist() == [
        "blocks.0.q",
        "blocks.0.out",
        "blocks.1.q",
        "blocks.1.out",
    ]
    assert kernels["work_ns"].tolist() == [29_000, 13_000, 41_000, 17_000]
    assert len(names_of(graph, "launch")) == 4
    assert kernels["cost"].tolist() == ["roofline", "recorded"] * 2


def test_products_that_fill_the_device_together_take_one_wave() -> None:
    """Three quarter-filling grids run side by side; three of 0.9 take three waves."""
    for fill, expected in ((0.25, 12_000), (0.9, 33_000)):
        graph = metaflow(projections(fill=[float("nan")] * 8 + [fill] * 8), merge="q|k|v")
        assert graph.tasks["work_ns"][graph.tasks["kind"] == "kernel"].iloc[0] == expected


def test_replaced_layers_follow_flops_and_bytes() -> None:
    """A product keeps half of its arithmetic."""
    graph = check(metaflow(projections(), replace="out", flops=0.5, bytes=0.1))
    kernels = graph.tasks[graph.tasks["kind"] == "kernel"]

    assert kernels["work_ns"].tolist()[2:5] == [12_000, 6_500, 14_000]
    assert kernels["cost"].tolist()[3] == "user"


def test_operators_tell_siblings_where_no_module_does() -> None:
    """Two products on one input shape, one on another; backward two each, in reverse order."""
    shapes = ["[[8,16],[16,4]]", "[[8,16],[16,4]]", "[[8,4],[4,4]]"] + ["[[4,8],[8,4]]"] * 6
    phases = ["forward"] * 3 + ["backward"] * 6
    graph = literal(
        [(f"sgemm{i}", "kernel", 0, 10_000, phase) for i, phase in enumerate(phases)],
        columns={"operator": list(range(9))},
        operators={
            "name": ["aten::mm"] * 9,
            "parent": [-1] * 9,
            "phase": phases,
            "step": [0] * 9,
            "shapes": shapes,
        },
    )
    merged = check(metaflow(graph, merge="auto"))

    assert names_of(merged, "kernel") == [f"sgemm{i}" for i in (0, 2, 3, 4, 7, 8)]
    assert merged.tasks["work_ns"].tolist() == [18_000, 10_000, 10_000, 10_000, 18_000, 18_000]
    assert "inputs of one shape are taken for one input" in merged.notes[-1]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "metaflow needs merge=... or replace=..."),
        ({"merge": "out"}, "no two modules matching merge='out' lie in one module"),
        ({"merge": "auto"}, "no products that follow one another"),
        ({"merge": "nothing"}, "no module matching 'nothing'"),
        ({"replace": "out", "flops": 0.0}, "flops=0.0 is out of range"),
    ],
)
def test_metaflow_says_why_not(settings: dict[str, Any], message: str) -> None:
    """One clear error."""
    with pytest.raises(TransformError, match=message):
        metaflow(projections(), **settings)


def test_on_a_real_network_each_moves_the_step_as_it_should() -> None:
    """ResNet-50, batch 32: batch norms are a third of it; 2.9 GB do not hide behind 96 ms."""
    if not (PUBLIC / RESNET).exists():
        pytest.skip("the public traces are not here")
    graph = build(load(PUBLIC / RESNET))
    before = replay(graph).step_ns

    assert 0.7 < replay(check(reconstruct_batchnorm(graph))).step_ns / before < 0.95
    assert replay(check(vdnn(graph))).step_ns > 2 * 2.5e9 / 12
    assert replay(check(vdnn(graph, pcie_gbps=1e5))).step_ns < 1.05 * before
    assert 1.0 < replay(check(gist(graph))).step_ns / before < 1.2
