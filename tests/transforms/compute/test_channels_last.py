"""channels_last: layout changes go; on a CPU calibration or a guess decides."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from foretrace.errors import TransformError
from foretrace.graph.literal import literal
from foretrace.graph.state import Autocast
from foretrace.testing import check_transform
from foretrace.tracer.trace import Device
from foretrace.transforms.compute.channels_last import channels_last
from foretrace.transforms.compute.layout_on_device import NO_TENSOR_CORES
from tests.support.jobs.kernels import NHWC_CONV, TO_NHWC, cpu_convolutions, layout_changes
from tests.support.jobs.simple import META, cpu_job, gpu_job

if TYPE_CHECKING:
    from foretrace.graph.model import Graph


def test_only_the_input_is_turned_around() -> None:
    """Of five layout changes in a step the first is left."""
    changed = check_transform(channels_last, layout_changes())

    assert changed.tasks["name"].tolist() == [TO_NHWC, NHWC_CONV, NHWC_CONV]
    assert "4 layout changes per step go away" in changed.notes[0]


def test_convolutions_in_the_layout_they_are_given_gain_nothing() -> None:
    """That is an error, not a gain of 0 %."""
    graph = literal([(NHWC_CONV, "kernel", 0, 100, "forward")])

    with pytest.raises(TransformError, match="no kernel turns images around"):
        channels_last(graph)


def images(device: str = "Tesla V100-SXM2-32GB") -> Graph:
    """Build a convolution, a 1x1 one that runs as a product, and a batch norm, in fp32."""
    names = ["volta_scudnn_128x64_relu", "volta_sgemm_64x64_nn", "bn_fw_tr_1C11_kernel_NCHW"]
    return literal(
        [(name, "kernel", 0, 1_000_000, "forward") for name in names],
        columns={"operator": [0, 0, 1]},
        operators={"name": ["aten::conv2d", "aten::batch_norm"], "parent": [-1, -1]},
        meta=replace(META, devices=(Device(0, device),)),
    )


def test_without_tensor_cores_nhwc_is_the_slower_layout() -> None:
    """In fp32 on Volta a convolution takes 1.64 times as long, a 1x1 one that is a product not."""
    changed = check_transform(channels_last, images())

    assert changed.tasks["work_ns"].tolist() == [1_640_000, 1_000_000, 1_000_000]
    assert "1 convolutions per step run without tensor cores" in changed.notes[0]
    assert NO_TENSOR_CORES.least > 1


def test_on_tensor_cores_layout_changes_go_and_norms_read_once() -> None:
    """After `amp` they are in the convolutions' time: 0.30 of it, in NCHW."""
    graph = images().with_state(autocast=Autocast("fp16", "flash2"))
    changed = check_transform(channels_last, graph)

    assert changed.tasks["work_ns"].tolist() == [769_231, 1_000_000, 625_000]


def test_tf32_on_an_a100_has_tensor_cores() -> None:
    """What `tf32` moved turned its images around; batch norms see as many bytes as before."""
    graph = images("NVIDIA A100-SXM4-40GB").with_state(tf32=("conv",))

    assert channels_last(graph).tasks["work_ns"].tolist() == [769_231, 1_000_000, 1_000_000]


def test_nothing_is_known_of_other_libraries() -> None:
    """MIOpen has kernels of its own."""
    with pytest.raises(TransformError, match="no kernel turns images around"):
        channels_last(images("AMD Instinct MI300X"))


@pytest.mark.parametrize("graph", [gpu_job(), cpu_job()])
def test_a_job_without_convolutions_has_no_images(graph: Graph) -> None:
    """The error says what was looked for."""
    with pytest.raises(TransformError, match="no convolution in forward or backward"):
        channels_last(graph)


def test_a_cpu_without_calibration_is_a_guess_and_says_so() -> None:
    """Convolutions and norms change by their kind; products and the update take what they did."""
    changed = check_transform(channels_last, cpu_convolutions())

    assert changed.tasks["work_ns"].tolist() == [85, 58, 100]
    assert changed.tasks["cost"].tolist() == ["prior", "prior", "recorded"]
    assert [doubt.code for doubt in changed.state.doubts] == ["layout-guessed"]


@pytest.mark.parametrize(
    ("name", "shapes", "autocast", "work"),
    [
        ("aten::convolution_backward", "[[2,8,9,9],[2,8,9,9],[8,8,3,3]]", None, 85),
        ("aten::convolution_backward", "[[2,8,9,9],[2,8,9,9],[8,1,3,3]]", None, 40),
        ("aten::mkldnn_convolution", "[[2,8,9,9],[8,8,1,1],[8]]", None, 98),
        ("aten::mkldnn_convolution", "[[2,8,9,9],[8,8,1,1],[8]]", "bf16", 50),
        ("aten::mkldnn_convolution", "[[2,1,9,9],[8,1,3,3],[8]]", None, 85),
        ("aten::native_group_norm", "[[2,8,9,9],[8],[8]]", None, 135),
        ("aten::native_layer_norm", "[[2,8,9],[8],[8]]", None, 100),
        ("aten::max_pool2d_with_indices", "[[2,8,9,9]]", None, 17),
    ],
)
def test_each_kind_of_operator_changes_in_its_own_way(
    name: str, shapes: str, autocast: str | None, work: int
) -> None:
    """Group norm gets slower, 1x1 convolutions gain in 16 bits only, depthwise ones most."""
    tasks = [("aten::convolution", "host", 0, 0, "forward"), (name, "host", 0, 100, "forward")]
    graph = literal(
        tasks,
        columns={"operator": [0, 1]},
        operators={
            "name": ["aten::convolution", name],
            "parent": [-1, -1],
            "shapes": [None, shapes],
            "phase": ["forward", "forward"],
        },
    ).with_state(autocast=autocast and Autocast(autocast, "flash2"))

    assert channels_last(graph).tasks["work_ns"].tolist()[1] == work
