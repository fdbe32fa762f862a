"""channels_last: layout changes go; on a CPU calibration or a guess decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from foretrace.errors import TransformError
from foretrace.graph.literal import literal
from foretrace.graph.state import Autocast
from foretrace.testing import check_transform
from foretrace.transforms.compute.channels_last import channels_last
from tests.support.jobs.kernels import NHWC_CONV, TO_NHWC, cpu_convolutions, layout_changes
from tests.support.jobs.simple import cpu_job, gpu_job

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
