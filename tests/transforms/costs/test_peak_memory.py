"""Device memory: what the allocator recorded, what shapes and times tell, what what-ifs change."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from foretrace.analysis.prediction import predict
from foretrace.graph.build import build
from foretrace.graph.literal import literal
from foretrace.graph.state import MEMORY_PARTS
from foretrace.tracer.readers.kineto.read import read_kineto
from foretrace.tracer.readers.load import load
from foretrace.tracer.trace import Device
from foretrace.transforms.costs.activations import activations, kept_elements
from foretrace.transforms.costs.memory_curve import memory_curve
from foretrace.transforms.costs.operators import ACCUMULATE
from foretrace.transforms.costs.peak_memory import (
    Memory,
    capacity_bytes,
    change_memory,
    keep,
    memory_warnings,
    peak_memory,
)
from foretrace.transforms.scenario import parse_scenario
from tests.support.jobs.simple import ADDCDIV, META, gpu_job
from tests.support.paths import PUBLIC

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

KERNEL = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 1, "dur": 5}


def allocation(ts: float, size: int, device: int, **totals: int) -> dict[str, Any]:
    """Return one memory event as Kineto writes it."""
    args = {"Device Type": int(device >= 0), "Device Id": device, "Bytes": size, **totals}
    return {"ph": "i", "s": "t", "name": "[memory]", "pid": 1, "tid": 1, "ts": ts,
            "cat": "cpu_instant_event", "args": args}  # fmt: skip


def recorded(*events: dict[str, Any]) -> Any:
    """Return what the reader keeps of these memory events."""
    raw = json.dumps({"traceEvents": [KERNEL, *events]}).encode()
    return read_kineto(raw, "memory.json").meta.extra.get("memory")


def test_the_reader_keeps_the_highest_total() -> None:
    """Of the device where it is highest; the host's allocations do not count."""
    found = recorded(
        allocation(2, 90, 0, **{"Total Allocated": 190, "Total Reserved": 400}),
        allocation(3, -90, 0, **{"Total Allocated": 100, "Total Reserved": 400}),
        allocation(4, 10, 1, **{"Total Allocated": 150, "Total Reserved": 200}),
        allocation(5, 999, -1, **{"Total Allocated": 999, "Total Reserved": 999}),
    )

    assert found == {
        "device": 0,
        "allocated_bytes": 190,
        "reserved_bytes": 400,
        "before_bytes": 100,
        "swing_bytes": 90,
    }


def test_events_without_totals_show_what_came_and_went() -> None:
    """As until 2021; they need not stand in order of time."""
    found = recorded(
        allocation(4, -70, 0), allocation(2, 40, 0), allocation(3, 60, 0), allocation(5, -80, 0)
    )

    assert found["allocated_bytes"] is None
    assert found["swing_bytes"] == 150
    assert recorded(allocation(2, 40, -1)) is None


@pytest.mark.parametrize(
    ("name", "shapes", "kind", "elements"),
    [
        ("aten::cudnn_convolution", "[[8,3,10,10],[16,3,3,3]]", "conv", 2_400),
        ("aten::addmm", "[[8],[4,16],[16,8]]", "gemm", 64),
        ("aten::max_pool2d", "[[2,4,8,8]]", "pool", 768),
        ("aten::_flash_attention", "[[2,8,16,4],[2,8,16,4],[2,8,16,4]]", "attention", 4_096),
        ("aten::relu", "[]", "conv", 0),
    ],
)
def test_what_an_operator_keeps(name: str, shapes: str, kind: str, elements: float) -> None:
    """Its input; with pooling the indices, with attention its three inputs and its output."""
    assert kept_elements(name, shapes, kind) == elements


def network(**settings: Any) -> Graph:
    """Two convolutions of 4 x 8 and one normalisation, then backward, and Adam."""
    names = ["scudnn_a", "bn_fw_norm", "scudnn_b", "bn_bw_norm", "scudnn_dgrad", "scudnn_wgrad"]
    phases = ["forward"] * 3 + ["backward"] * 3
    tasks = [(n, "kernel", 0, 100_000, p) for n, p in zip(names, phases, strict=True)]
    tasks.append((ADDCDIV, "kernel", 0, 40_000, "optimizer"))
    shapes = ["[[4,8],[8,8]]", "[[4,8],[8],[8]]", "[[4,8],[8,8]]"]
    return literal(
        tasks,
        columns={"operator": [0, 1, 2, -1, -1, -1, -1]},
        operators={
            "name": ["aten::conv2d", "aten::batch_norm", "aten::conv2d", ACCUMULATE, ACCUMULATE],
            "parent": [-1] * 5,
            "step": [0] * 5,
            "phase": ["forward"] * 3 + ["backward"] * 2,
            "shapes": [*shapes, "[[16,8]]", "[[16]]"],
        },
        meta=replace(META, devices=(Device(0, "NVIDIA A100-SXM4-80GB", memory_bytes=1_500),)),
        **settings,
    )


def test_backward_needs_them_in_reverse_order() -> None:
    """Each by the first task of its kind in its place."""
    found = activations(network())

    assert found.forward.tolist() == [0, 1, 2]
    assert found.backward.tolist() == [5, 3, 4]
    assert found.kind.tolist() == ["conv", "batch_norm", "conv"]
    assert found.size.tolist() == [128.0, 128.0, 128.0]


def test_only_the_innermost_of_nested_operators_keeps_its_input() -> None:
    """On a CPU each of conv2d, convolution and the library's own has tasks."""
    names = ["aten::conv2d", "aten::convolution", "aten::mkldnn_convolution"]
    graph = literal(
        [(name, "host", 0, 1_000, "forward") for name in names],
        columns={"operator": [0, 1, 2]},
        operators={
            "name": names,
            "parent": [-1, 0, 1],
            "shapes": ["[[4,8],[8,8]]"] * 3,
        },
    )

    assert activations(graph).forward.tolist() == [2]


def test_a_peak_from_shapes() -> None:
    """Most is held when three of four gradients are there, and one of three inputs of 128 B.

    Gradients have 128 and 16 elements, as have the parameters, with two states each; the first
    layer reads and writes a gradient of its activations.
    """
    assert peak_memory(network()) == Memory(
        576.0, 432.0, 1_152.0, 128.0, "shapes", temporary=256.0, phase="backward"
    )


def test_times_tell_where_shapes_do_not() -> None:
    """The ReLU before the product wrote its input: 100 us at 85 % of 2,039 GB/s, two passes."""
    relu = "vectorized_elementwise_kernel<4, relu<float>, Array<char*, 2>>"
    tasks = [
        (relu, "kernel", 0, 100_000, "forward"),
        ("sgemm", "kernel", 0, 9_000, "forward"),
        ("sgemm", "kernel", 0, 9_000, "backward"),
    ]
    meta = replace(META, devices=(Device(0, "NVIDIA A100-SXM4-80GB"),))
    found = activations(literal(tasks, meta=meta))

    assert found.size.tolist() == pytest.approx([100_000 * 2_039 * 0.85 / 2])
    assert not found.from_shapes.any()
    assert peak_memory(literal(tasks)) is None


def test_the_recorded_total_wins() -> None:
    """Activations are what everything else leaves of it at the highest moment."""
    graph = network()
    graph = replace(graph, meta=replace(graph.meta, extra={"memory": {"allocated_bytes": 3_000}}))
    memory = peak_memory(graph)

    assert memory is not None
    assert (memory.bytes, memory.activations, memory.source) == (3_000, 1_000, "recorded")
    halved = peak_memory(keep(graph, 0.5))
    assert halved is not None
    assert halved.activations == pytest.approx(1_000 / 3)  # one layer later, of two inputs


def test_changes_apply_to_their_kinds() -> None:
    """Half of the convolutions' inputs, then twice everything."""
    graph = keep(keep(network(), 0.5, "conv"), 2.0)
    curve = memory_curve(graph)

    assert curve is not None
    activations = curve.after(graph.state).held[:, MEMORY_PARTS.index("activations")]
    assert activations.max() == 2 * (64 + 128 + 64)


def test_gradients_stay_where_batches_are_accumulated() -> None:
    """The peak comes when forward is over, where there was none of them."""
    graph = network().with_state(gradients_stay=True)
    memory = peak_memory(graph)

    assert memory is not None
    assert memory.gradients == 576


def test_parts_can_be_shared_out_and_added_to() -> None:
    """A quarter of the states, and 100 B beside the temporary ones."""
    graph = change_memory(
        change_memory(network(), 0.25, "optimizer_state"), 1.0, "other", added=100
    )
    memory = peak_memory(graph)

    assert memory is not None
    assert (memory.optimizer_state, memory.other) == (288.0, 100.0)


def test_what_does_not_fit_is_said() -> None:
    """Three times the activations are 768 B more than the 1,500 B that held the recorded job."""
    graph = network()

    assert capacity_bytes(graph) == 1_500
    assert memory_warnings(graph, graph) == ()
    assert memory_warnings(graph, keep(graph, 0.5)) == ()
    roomy = replace(graph, meta=replace(META, devices=(Device(0, "V100", memory_bytes=10**12),)))
    assert memory_warnings(roomy, keep(roomy, 3.0)) == ()
    (text,) = memory_warnings(graph, keep(graph, 3.0))
    assert text == "does not fit: needs about 0.0 GB of the 0.0 GB of memory (source: shapes)"


def test_a_smaller_device_may_not_hold_the_job() -> None:
    """2,688 B in 1,500 B."""
    graph = network()
    roomy = replace(graph, meta=replace(META, devices=(Device(0, "V100", memory_bytes=10_000),)))

    assert "does not fit" in memory_warnings(roomy, graph)[0]


def test_a_prediction_warns() -> None:
    """A hundred times the batch takes a hundred times the activations."""
    graph = gpu_job()
    small = Device(0, "NVIDIA A100-SXM4-80GB", memory_bytes=10**9)
    graph = replace(graph, meta=replace(graph.meta, devices=(small,)))
    fits, bigger, halved = (
        predict(graph, parse_scenario([text])).warnings
        for text in ("batch_size(n=33)", "batch_size(n=3200)", "amp")
    )

    assert not [text for text in fits + halved if "does not fit" in text]
    assert [text for text in bigger if text.startswith("does not fit: needs about")]


def test_nothing_is_known_of_a_job_without_a_device_table() -> None:
    """No shapes, no bandwidth."""
    assert peak_memory(gpu_job(device="unheard of")) is None


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("triosim/vgg13_h100_bs512_adam_iter41.json.gz", 0.85, 1.05),
        ("kineto-tb-plugin/resnet50_v100_nw0_2021-06_runA.json.gz", 0.95, 1.15),
    ],
)
def test_the_estimate_meets_what_was_recorded(name: str, low: float, high: float) -> None:
    """Activations against the swing of the allocator: 34.8 of 36.3 GB and 2.94 of 2.79 GB."""
    if not (PUBLIC / name).exists():
        pytest.skip("the public traces are not here")
    graph = build(load(PUBLIC / name))
    swing = graph.meta.extra["memory"]["swing_bytes"]

    assert low < activations(graph).size.sum() / graph.steps / swing < high
