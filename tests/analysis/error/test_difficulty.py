"""What is known of an answer before anything is measured."""

from __future__ import annotations

import math

import pytest

from foretrace.analysis.error.difficulty import Difficulty, describe_difficulty, python_share
from foretrace.analysis.prediction import predict
from foretrace.graph.literal import literal
from tests.support.jobs.kernels import device_bound


def test_twice_as_slow_is_as_difficult_as_twice_as_fast() -> None:
    """The size of a change has no sign; what was recorded or given adds nothing."""
    costs = {"recorded": 0.1, "roofline": 0.2, "prior": 0.1, "measured": 0.4, "user": 0.2}
    slower, faster = (describe_difficulty(costs, ratio, 0.0) for ratio in (2.0, 0.5))

    assert slower == faster == pytest.approx(Difficulty(0.3, 0.4, math.log(2), 0.0))


def test_python_is_what_no_operator_fills() -> None:
    """30 of 40 ns are work."""
    graph = literal([("mm", "host", 0, 30, "forward")], wrap=True, measured_step_ns=40)

    assert python_share(graph) == 0.25


def test_a_prediction_tells_its_difficulty() -> None:
    """Half of the work is the user's figure, and the step halves."""
    found = predict(device_bound(), 'faster_kernels(pattern="gemm", speedup=3)')

    assert found.difficulty.change == pytest.approx(math.log(2))
    assert (found.difficulty.rule, found.difficulty.timed) == (0.0, 0.0)
