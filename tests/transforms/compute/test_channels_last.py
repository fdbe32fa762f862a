"""channels_last: layout changes go; on a CPU calibration or a guess decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from foretrace.errors import TransformError
from foretrace.graph.literal import literal
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
    """Convolutions and norms take 0.8 of their time; products and the update what they did."""
    changed = check_transform(channels_last, cpu_convolutions())

    assert changed.tasks["work_ns"].tolist() == [80, 80, 100]
    assert changed.tasks["cost"].tolist() == ["prior", "prior", "recorded"]
    assert changed.notes[0].startswith("channels_last: a guess without calibration")
