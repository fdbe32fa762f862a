"""The job on another GPU: what each class of kernels gains, and measured pairs of devices."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretrace.errors import TransformError
from foretrace.graph.build import build
from foretrace.graph.literal import literal
from foretrace.tracer.readers.load import load
from foretrace.tracer.trace import Device
from foretrace.transforms.compute.amp.amp import amp
from foretrace.transforms.compute.device import HOST_STAYS, device
from foretrace.transforms.compute.tf32 import tf32
from foretrace.transforms.costs.devices import FIGURES, device_named, devices
from foretrace.transforms.costs.roofline import kernel_time_ns, layout_share
from tests.support.jobs.simple import META, cpu_job, gpu_job

if TYPE_CHECKING:
    from pathlib import Path

    from foretrace.graph.model import Graph

RELU = "vectorized_elementwise_kernel<4, relu<float>>"
GEMM = "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_64x3_nn"
RANGES = {
    "overlap_share": (0.3, 1.0),
    "fp32_tflops": (1, 200),
    "fp32_matrix_tflops": (20, 200),
    "tf32_tflops": (50, 1500),
    "fp16_tflops": (15, 3000),
    "bf16_tflops": (50, 3000),
    "fp8_tflops": (200, 6000),
    "fp4_tflops": (1000, 16_000),
    "memory_gbps": (300, 10_000),
    "memory_gb": (8, 300),
    "l2_mb": (2, 300),
    "sm_count": (30, 400),
    "clock_mhz": (1000, 3000),
    "pcie_gbps": (10, 130),
    "link_gbps": (40, 1000),
    "matrix_share": (0.3, 0.95),
    "streaming_share": (0.5, 0.95),
    "kernel_floor_us": (1, 5),
    "kernel_gap_us": (0.2, 3),
    "launch_latency_us": (3, 30),
}
PAIRS = [
    ("qwen1.5-0.5b", "h100", "mi300x", "MI300X"),
    ("qwen1.5-0.5b", "mi300x", "h100", "H100"),
    ("bert-small", "h100", "mi300x", "MI300X"),
    ("bert-small", "mi300x", "h100", "H100"),
    ("vit-nsfw", "h100", "mi300x", "MI300X"),
    ("vit-nsfw", "mi300x", "h100", "H100"),
]


def job(name: str, work: int, on: str, **columns: Any) -> Graph:
    """Build a job of one kernel that takes *work* ns on the device *on*."""
    operators = columns.pop("operators", {})
    tasks = [(name, "kernel", 0, work, "forward")]
    meta = replace(META, devices=(Device(0, on),))
    return literal(tasks, columns=columns, operators=operators, meta=meta)


def product(shapes: str, work: int, on: str) -> Graph:
    """Build a job of one fp16 product of known shapes."""
    operators = {
        "name": ["aten::mm"],
        "parent": np.array([-1], np.int32),
        "shapes": [shapes],
        "dtypes": ['["c10::Half","c10::Half"]'],
    }
    return job(GEMM, work, on, operator=np.array([0], np.int32), operators=operators)


def only(graph: Graph) -> tuple[int, str]:
    """Return time and cost label of the only task."""
    (task,) = graph.tasks[["work_ns", "cost"]].itertuples(index=False)
    return int(task.work_ns), str(task.cost)


def test_every_figure_is_plausible() -> None:
    """Peaks, links and latencies lie where GPUs of 2016 to 2025 lie."""
    assert set(RANGES) == set(FIGURES)
    for _, row in devices():
        if row.vendor != "cpu":
            for name, value in row.figures.items():
                low, high = RANGES[name]
                assert low <= value <= high, (row.name, name, value)
            wanted = {"fp32_tflops", "memory_gbps", "memory_gb", "matrix_share"}
            assert wanted | {"streaming_share", "kernel_floor_us"} <= set(row.figures)


def test_small_kernels_go_with_the_floor() -> None:
    """Below the floor all is latency: 2.0 us on V100 becomes 2.5 on MI300X, half of it 1.25."""
    assert only(device(job(RELU, 2_000, "V100"), name="MI300X")) == (2_500, "table")
    assert only(device(job(RELU, 1_000, "V100"), name="MI300X")) == (1_250, "table")


def test_streaming_kernels_go_with_the_bandwidth() -> None:
    """Far above the floor: 0.92 of 900 against 0.87 of 1555 GB/s."""
    work, _ = only(device(job(RELU, 100_000_000, "V100"), name="A100"))

    assert work == pytest.approx(1e8 * (0.92 * 900) / (0.87 * 1_555), rel=1e-3)


def test_a_product_is_bound_by_what_its_shapes_say() -> None:
    """A square product goes with the peaks, a product with a vector with the bandwidth."""
    a100, h100 = device_named("A100").figures, device_named("H100").figures
    square = product("[[4096,4096],[4096,4096]]", 10**9, "A100")
    thin = product("[[1,4096],[4096,4096]]", 10**9, "A100")
    peak = a100["fp16_tflops"] * a100["matrix_share"]
    bandwidth = a100["memory_gbps"] * a100["streaming_share"]

    assert only(device(square, name="H100"))[0] == pytest.approx(
        1e9 * peak / (h100["fp16_tflops"] * h100["matrix_share"]), rel=1e-3
    )
    assert only(device(thin, name="H100"))[0] == pytest.approx(
        1e9 * bandwidth / (h100["memory_gbps"] * h100["streaming_share"]), rel=1e-3
    )
    assert only(device(thin, name="H100"))[1] == "roofline"


def test_few_blocks_do_not_fill_more_multiprocessors() -> None:
    """32 blocks on 108 or 132 of them: the ratio is that of one multiprocessor, not of all."""
    full = only(device(job(GEMM, 10**9, "A100", blocks=np.array([10_000])), name="H100"))[0]
    few = only(device(job(GEMM, 10**9, "A100", blocks=np.array([32])), name="H100"))[0]

    assert few == pytest.approx(full * 132 / 108, rel=1e-3)


def test_convolutions_move_to_tf32() -> None:
    """On an NVIDIA device that has it; not on AMD, and products stay in fp32."""
    conv, gemm = "volta_scudnn_128x64_relu_xregs_large_nn_v1", "volta_sgemm_128x64_nt"

    moved = device(job(conv, 10**8, "V100"), name="A100")
    share = 0.5 * 0.86 / 0.85  # what products reach there, by half, over what they reach in fp32
    assert only(moved)[0] == pytest.approx(1e8 * 15.7 / (156 * share) * 1.30, rel=2e-3)
    assert any("TF32" in note for note in moved.notes)
    assert only(device(job(gemm, 10**8, "V100"), name="A100"))[0] == pytest.approx(
        1e8 * 15.7 / 19.5, rel=2e-3
    )
    assert only(device(job(conv, 10**8, "V100"), name="MI300X"))[0] == pytest.approx(
        1e8 * 15.7 / 163.4, rel=0.01
    )


@pytest.mark.parametrize(("name", "more"), [("H100", 0.44), ("B200", 0.42), ("A10", 0.31)])
def test_layout_changes_go_with_the_memory(name: str, more: float) -> None:
    """Tensor cores got faster than memories: what is 0.30 of a convolution on A100 is more there.

    1x1 convolutions run as products, for which nothing is turned around.
    """
    assert layout_share(device_named(name)) == pytest.approx(more, abs=0.01)
    operators = {"name": ["aten::cudnn_convolution"], "parent": [-1]}
    pointwise = job("volta_sgemm_64x64_nn", 10**8, "V100", operator=[0], operators=operators)
    turned = job("volta_scudnn_128x64_relu", 10**8, "V100", operator=[0], operators=operators)
    times = [only(device(each, name=name))[0] for each in (turned, pointwise)]

    assert times[0] / times[1] == pytest.approx(1 + more, abs=0.01)


def test_what_moved_to_tf32_is_there() -> None:
    """`tf32` after `device` finds convolutions in TF32; `amp` then gains twice, not 16 times."""
    conv, gemm = "volta_scudnn_128x64_relu_xregs_large_nn_v1", "volta_sgemm_128x64_nt"
    meta = replace(META, devices=(Device(0, "V100"),))
    graph = literal([(n, "kernel", 0, 10**8, "forward") for n in (conv, gemm)], meta=meta)
    there = device(graph, name="A100")
    both = tf32(there)

    assert there.state.tf32 == ("conv",)
    assert both.state.tf32 == ("conv", "gemm")
    assert both.tasks["work_ns"][0] == there.tasks["work_ns"][0]
    assert both.tasks["work_ns"][1] < there.tasks["work_ns"][1]
    halved = amp(both).tasks
    products = halved[halved["name"].isin([conv, gemm])]["work_ns"].to_numpy()
    np.testing.assert_allclose(products, both.tasks["work_ns"] / 2, rtol=1e-3)


def test_what_a_device_lacks_runs_wider() -> None:
    """bf16 on V100 is emulated in fp32, and the notes say so."""
    name = GEMM.replace("fp16", "bf16")
    moved = device(job(name, 10**8, "A100"), name="V100")

    assert only(moved)[0] == pytest.approx(1e8 * 312 * 0.5 * 0.86 / (15.7 * 0.85), rel=2e-3)
    assert any("wider type: fp32" in note for note in moved.notes)


def test_the_changed_job_is_on_the_new_device() -> None:
    """Device, gaps, launch latency, queue and how full a kernel makes it; and back again."""
    graph = gpu_job(device="NVIDIA H100 80GB HBM3")
    moved = device(graph, name="MI300X")
    back = device(moved, name="H100")
    launches = graph.edges["kind"] == "launch"

    assert [d.name for d in moved.meta.devices] == ["MI300X"]
    assert moved.platform.queue_depth is None
    assert back.platform.queue_depth == 1_023
    assert (moved.edges["lag_ns"][launches] > graph.edges["lag_ns"][launches]).all()
    assert device(moved, name="MI300X") is moved
    np.testing.assert_allclose(back.tasks["work_ns"], graph.tasks["work_ns"], atol=2)


def test_a_recording_without_a_name_takes_one() -> None:
    """`recorded` says what it ran on; what comes after knows the device too."""
    graph = replace(gpu_job(), meta=replace(META, devices=()))

    with pytest.raises(TransformError, match=r"recorded device \(no name\) is not in the table"):
        device(graph, name="H100")
    for recorded in ("V100", "H100"):
        (found,) = device(graph, name="H100", recorded=recorded).meta.devices
        assert (found.index, found.name, found.sm_count) == (0, "H100-SXM5", 132)


def test_copies_go_with_the_link_or_the_memory() -> None:
    """Pinned copies with PCIe, copies on the device with its memory, pageable ones stay."""
    names = ["Memcpy HtoD (Pinned -> Device)", "Memcpy DtoD (Device -> Device)"]
    names.append("Memcpy HtoD (Pageable -> Device)")
    tasks = [(name, "memcpy", 0, 1_002_000, None) for name in names]
    graph = literal(tasks, meta=replace(META, devices=(Device(0, "Tesla V100-SXM2-32GB"),)))
    pinned, inside, pageable = device(graph, name="A100").tasks["work_ns"].tolist()

    assert pinned == pytest.approx(2_000 + 1e6 * 15.8 / 31.5, rel=1e-3)
    assert inside == pytest.approx(2_000 + 1e6 * 0.612, rel=1e-2)
    assert pageable == 1_002_000


def test_the_host_may_change_too() -> None:
    """`host_speedup` is `faster_host`; by default host tasks stay."""
    graph = gpu_job()
    host = graph.tasks["kind"].isin(["host", "launch"]).to_numpy()
    kept = device(graph, name="H100").tasks["work_ns"].to_numpy()
    faster = device(graph, name="H100", host_speedup=2.0).tasks["work_ns"].to_numpy()

    assert HOST_STAYS in device(graph, name="H100").notes
    assert HOST_STAYS not in device(graph, name="H100", host_speedup=2.0).notes
    assert (kept[host] == graph.tasks["work_ns"].to_numpy()[host]).all()
    assert (faster[host] * 2 == kept[host]).all()


@pytest.mark.parametrize(
    ("graph", "parameters", "text"),
    [
        (cpu_job(), {"name": "H100"}, "no device task in this graph"),
        (gpu_job(), {"name": "EPYC CPU"}, "is a CPU; give a GPU"),
        (gpu_job(), {"name": "H100", "recorded": "Xeon"}, "'Xeon' is a CPU; give a GPU"),
        (gpu_job(), {"name": "Abacus"}, "device 'Abacus' is not in the table"),
        (gpu_job(device="Abacus"), {"name": "H100"}, r"recorded device \(Abacus\) is not in"),
        (gpu_job(), {"name": "H100", "host_speedup": 0}, "host_speedup=0 is out of range"),
        (
            gpu_job(),
            {"name": "H100", "recorded": "V100-SXM2"},
            "recorded='V100-SXM2' contradicts this job, which runs on A100-SXM4-80GB",
        ),
    ],
)
def test_what_cannot_be_moved_is_an_error(
    graph: Graph, parameters: dict[str, Any], text: str
) -> None:
    """The text says what was given and what to give."""
    with pytest.raises(TransformError, match=text):
        device(graph, **parameters)


WHOLE = [row.name for _, row in devices() if {"sm_count", "pcie_gbps"} <= set(row.figures)]
"""Of the others not all that a change of device needs is public."""


def test_a_device_without_public_figures_is_refused() -> None:
    """GB300 reaches its host by NVLink, of which no datasheet tells the share of a GPU."""
    with pytest.raises(TransformError, match="no public figure tells the pcie_gbps of GB300"):
        device(job(RELU, 2_000, "V100"), name="GB300")


@settings(deadline=None, max_examples=30)
@given(
    work=st.integers(1, 10**9),
    name=st.sampled_from([RELU, GEMM, "flash_fwd_kernel<bf16>", "volta_sgemm_nn", "unheard_of"]),
    old=st.sampled_from(WHOLE),
    new=st.sampled_from(WHOLE),
)
def test_any_kernel_runs_on_any_device(work: int, name: str, old: str, new: str) -> None:
    """A longer kernel stays longer, and nothing becomes free, whatever the two devices."""
    moved = only(device(job(name, work, old), name=new))[0]
    longer = only(device(job(name, work + 1_000, old), name=new))[0]

    assert 0 <= moved <= longer
    assert longer > 0


@pytest.mark.parametrize(("model", "old", "new", "name"), PAIRS)
def test_kernel_time_on_the_other_vendor(
    public_traces: Path, model: str, old: str, new: str, name: str
) -> None:
    """H100 and MI300X ran the same inference: total kernel time within 15 %, both ways."""
    folder = public_traces / "tracelens"
    before, after = (build(load(folder / f"infer_{model}_{on}.json.gz")) for on in (old, new))
    predicted = kernel_time_ns(device(before, name=name))

    assert predicted == pytest.approx(kernel_time_ns(after), rel=0.15)


@pytest.mark.slow
def test_kernel_time_on_the_next_generation(public_traces: Path) -> None:
    """ResNet-50, V100 and A100: convolutions change to TF32; within 15 %, both ways."""
    volta = build(load(public_traces / "hta/resnet50_ddp_v100_ws1_rank0.json.gz"))
    ampere = build(load(public_traces / "hta/resnet50_ddp_a100_ws2_rank0.json.gz"))

    ahead, back = device(volta, name="A100"), device(ampere, name="V100-SXM2")
    assert kernel_time_ns(ahead) == pytest.approx(kernel_time_ns(ampere), rel=0.15)
    assert kernel_time_ns(back) == pytest.approx(kernel_time_ns(volta), rel=0.15)


def test_a_product_takes_as_long_as_moving_its_data() -> None:
    """Tile and grid in a kernel's name bound it: 60,000 tiles of 128 x 128 halves are 2 GB.

    As much is read.
    """
    moving = 2 * 60_000 * 128 * 128 * 2
    graph = job(GEMM, 5_200_000, "V100", blocks=np.array([60_000]))
    old, new = (device_named(name).figures for name in ("V100", "MI300X"))

    moved = only(device(graph, name="MI300X"))[0]
    assert moving / (old["memory_gbps"] * old["streaming_share"]) < 5_200_000
    assert moved == pytest.approx(
        4_500 + moving / (new["memory_gbps"] * new["streaming_share"]), rel=1e-3
    )
