"""Measured costs on small graphs: what is matched, scaled, inserted and removed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretrace.analysis.prediction import predict
from foretrace.graph.check import check
from foretrace.graph.literal import literal
from foretrace.replaying.replay import replay
from foretrace.transforms.batching.batch_size import batch_size
from foretrace.transforms.compute.amp.amp import amp
from foretrace.transforms.compute.channels_last import channels_last
from foretrace.transforms.compute.fused_optimizer import fused_optimizer
from foretrace.transforms.measured.apply import apply_measured
from foretrace.transforms.measured.job_identity import attach
from foretrace.transforms.measured.operator_matching import entries_of_operators
from foretrace.transforms.scenario import parse_scenario
from tests.support.jobs.operators import BEFORE, OPERATORS, linear_job
from tests.support.recordings.calibrations import BF16, FP32, calibration

if TYPE_CHECKING:
    from foretrace.graph.model import Graph
    from foretrace.transforms.measured.calibration import Calibration

CHANGE = "channels_last()"


def with_after(*after: Any, change: str = CHANGE, **more: Any) -> Graph:
    """Return the job with a calibration that tells of one change."""
    return attach(linear_job(), calibration(BEFORE, {change: after}, **more))


def test_an_operator_stands_for_all_inside_it() -> None:
    """Addmm takes the copy inside it along; in-place forms are the same; the update is left out."""
    found = entries_of_operators(linear_job(), calibration(BEFORE).before)

    assert found.tolist() == [-1, 0, 0, 1, -1, -1]


def test_lists_that_differ_keep_their_common_parts() -> None:
    """An entry that was never recorded does not stop the search."""
    listed = [("aten::tanh", FP32, 1.0), BEFORE[0], ("aten::addmm", FP32, 1.0), BEFORE[1]]

    found = entries_of_operators(linear_job(), calibration(listed).before)

    assert found.tolist()[1] in (1, 2)
    assert found.tolist()[3] == 3


def test_a_recording_of_several_steps_is_matched_step_by_step() -> None:
    """The list is one step; the operators of each step meet it anew."""
    twice = {key: value * 2 for key, value in OPERATORS.items()}
    twice["parent"] = [-1, 0, 1, -1, -1, -1, 5, 6, -1, -1]
    twice["step"] = [0] * 5 + [1] * 5
    tasks = [("work", "host", 0, 5, "forward")] * 2
    graph = literal(tasks, operators=twice, columns={"step": np.array([0, 1], np.int32)})

    found = entries_of_operators(graph, calibration(BEFORE).before)

    assert found.tolist() == [-1, 0, 0, 1, -1] * 2 + [-1]


def test_the_same_types_take_the_ratio() -> None:
    """Half and double the benchmark: everything inside the operator changes alike."""
    graph = with_after(("aten::addmm", FP32, 500.0, 0), ("aten::relu", FP32, 800.0, 1))

    changed = apply_measured(graph, channels_last)

    assert changed is not None
    assert changed.tasks["work_ns"].tolist() == [100, 500, 100, 800, 900]
    assert changed.tasks["cost"].tolist() == ["recorded", *["measured"] * 3, "recorded"]
    assert changed.notes == (
        "channels_last: costs measured operator by operator, 94% of forward and backward",
    )


def test_another_type_takes_its_time_alone() -> None:
    """Recorded 1,200, alone 1,000: a new kernel of 9,000 costs 9,000, not 10,800."""
    graph = with_after(("aten::addmm", BF16, 9_000.0, 0), ("aten::relu", FP32, 400.0, 1))

    changed = apply_measured(graph, channels_last)

    assert changed is not None
    assert changed.tasks["work_ns"].tolist() == [100, 7_500, 1_500, 400, 900]


def test_what_was_warm_in_the_job_stays_warm_in_its_new_form() -> None:
    """Recorded 1,200, alone 2,400: a new kernel of 3,600 alone costs 1,800 in the job."""
    before = [("aten::addmm", FP32, 2_400.0), ("aten::relu_", FP32, 400.0)]
    after = [("aten::addmm", BF16, 3_600.0, 0), ("aten::relu", FP32, 400.0, 1)]
    graph = attach(linear_job(), calibration(before, {CHANGE: after}))

    changed = apply_measured(graph, channels_last)

    assert changed is not None
    assert changed.tasks["work_ns"].tolist() == [100, 1_500, 300, 400, 900]


def test_new_operators_follow_what_they_follow_in_the_list() -> None:
    """Two casts after addmm, in order, at the pace of the recording."""
    graph = with_after(
        ("aten::addmm", FP32, 1_000.0, 0),
        ("aten::_to_copy", BF16, 70.0, -1),
        ("aten::clone", BF16, 35.0, -1),
        ("aten::relu", FP32, 400.0, 1),
    )

    changed = apply_measured(graph, channels_last)

    assert changed is not None
    new = changed.tasks.iloc[5:]
    assert new["name"].tolist() == ["aten::_to_copy (predicted)", "aten::clone (predicted)"]
    assert new["work_ns"].tolist() == [80, 40]
    edges = changed.edges
    order = dict(zip(edges["src"], edges["dst"], strict=True))
    assert [order[2], order[5], order[6], order[3]] == [5, 6, 3, 4]


def test_operators_that_nothing_replaces_are_gone() -> None:
    """Relu is fused away: its task goes, and with it the time before it stays no longer."""
    graph = with_after(("aten::addmm", FP32, 1_000.0, 0))

    changed = apply_measured(graph, channels_last)

    assert changed is not None
    assert changed.tasks["name"].tolist() == [*OPERATORS["name"][:3], OPERATORS["name"][4]]
    assert replay(check(changed)).step_ns < replay(graph).step_ns


def test_one_operator_may_become_two() -> None:
    """What several entries replace together costs their sum."""
    graph = with_after(
        ("aten::mm", FP32, 300.0, 0), ("aten::add", FP32, 200.0, 0), ("aten::relu", FP32, 400.0, 1)
    )

    changed = apply_measured(graph, channels_last)

    assert changed is not None
    assert changed.tasks["work_ns"].tolist() == [100, 500, 100, 400, 900]


def test_what_was_not_timed_keeps_its_rule() -> None:
    """An entry without a time takes the factor of the rule, labelled as such."""
    graph = with_after(("aten::addmm", FP32, 2_000.0, 0), ("aten::relu", FP32, np.nan, 1))

    changed = apply_measured(graph, channels_last, rest=np.array([1, 9, 9, 3, 9.0]))

    assert changed is not None
    assert changed.tasks["work_ns"].tolist() == [100, 2_000, 400, 1_200, 900]
    assert changed.tasks["cost"].tolist()[3] == "roofline"


@pytest.mark.parametrize(
    "told",
    [
        calibration(BEFORE),
        calibration([], {CHANGE: [("aten::mm", FP32, 1.0, -1)]}),
        calibration([("aten::tanh", FP32, 1.0)], {CHANGE: [("aten::tanh", FP32, 1.0, 0)]}),
        calibration(BEFORE, {CHANGE: [("aten::mm", FP32, np.nan, 0), ("aten::relu", FP32, 9, 1)]}),
    ],
)
def test_a_calibration_that_does_not_tell_changes_nothing(told: Calibration) -> None:
    """Another change, an empty list, another job, and too little that could be timed."""
    assert apply_measured(attach(linear_job(), told), channels_last) is None
    assert apply_measured(linear_job(), channels_last) is None


def test_on_a_device_kernels_take_the_ratio_of_kernels() -> None:
    """The host part of an operator changes by its own time; a new operator launches a kernel."""
    operators = {"name": ["aten::mm"], "parent": [-1], "step": [0], "phase": ["forward"]}
    graph = literal(
        [("launch", "launch", 0, 40, "forward"), ("gemm", "kernel", 1, 600, "forward")],
        [(0, 1, "launch")],
        operators={**operators, "duration_ns": [40]},
        columns={"operator": np.zeros(2, np.int32)},
    )
    told = calibration(
        [("aten::mm", FP32, 40.0)],
        {CHANGE: [("aten::mm", FP32, 20.0, 0), ("aten::clone", FP32, 10.0, -1)]},
    )
    told.entries["device_ns"] = [500.0, 250.0, 80.0]

    changed = apply_measured(attach(graph, told), channels_last)

    assert changed is not None
    tasks = check(changed).tasks
    kernels = tasks[tasks["kind"] == "kernel"]
    assert kernels["work_ns"].tolist() == [300, 80]
    assert tasks["work_ns"].tolist()[0] == 20


def test_amp_takes_what_was_measured() -> None:
    """No probe of the machine is needed; the note of amp stays, so that it is applied once."""
    graph = with_after(
        ("aten::addmm", FP32, 500.0, 0), ("aten::relu", FP32, 400.0, 1), change="amp"
    )

    assert amp(graph).tasks["work_ns"].tolist() == [100, 500, 100, 400, 900]
    assert any("amp: matrix products" in note for note in amp(graph).notes)


def test_batch_size_takes_what_was_measured_and_rules_for_the_rest() -> None:
    """The measured operators grow by their ratio; the update stays."""
    graph = with_after(
        ("aten::addmm", FP32, 1_900.0, 0),
        ("aten::relu", FP32, 800.0, 1),
        change="batch_size(n=8)",
    )

    work = batch_size(graph, n=8).tasks["work_ns"].tolist()

    assert work[1:] == [1_900, 380, 800, 900]


def test_the_update_takes_the_ratio_of_whole_segments() -> None:
    """900 ns and 10 between the two tasks of the update, a third of it fused."""
    told = calibration(
        BEFORE,
        segments={("optimizer", ""): 3_000.0, ("optimizer", "fused_optimizer()"): 1_000.0},
    )
    graph = linear_job()
    tasks = graph.tasks.assign(phase=graph.tasks["phase"].cat.set_categories(["optimizer"]))
    tasks.loc[3, "phase"] = "optimizer"
    graph = attach(replace(graph, tasks=tasks), told)

    fused = fused_optimizer(graph)

    last = fused.tasks.iloc[-1]
    assert (last["work_ns"], last["cost"]) == (round((400 + 10 + 900) / 3), "measured")
    assert len(fused.tasks) == 4


def test_a_prediction_says_how_much_is_measured() -> None:
    """What keeps its cost stays "recorded"; that a calibration did not help is a warning."""
    told = calibration(
        BEFORE, {"amp": [("aten::addmm", FP32, 500.0, 0), ("aten::relu", FP32, 400.0, 1)]}
    )

    found = predict(linear_job(), parse_scenario(["amp"]), told)
    other = predict(linear_job(), parse_scenario(["batch_size(n=8)"]), told)

    assert found.costs["measured"] == pytest.approx(600 / 2_000)
    assert not any("calibration" in warning for warning in found.warnings)
    assert any("the calibration does not cover" in warning for warning in other.warnings)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.floats(1, 1e6), st.floats(1, 1e6)), min_size=2, max_size=2))
def test_equal_timings_change_nothing(times: list[tuple[float, float]]) -> None:
    """Whatever the benchmark says, a new form as fast as the old one predicts the same step."""
    before = [(name, FP32, ns) for (name, _, _), (ns, _) in zip(BEFORE, times, strict=True)]
    after = [(name, FP32, ns, i) for i, (name, _, ns) in enumerate(before)]
    graph = attach(linear_job(), calibration(before, {CHANGE: after}))

    changed = apply_measured(graph, channels_last)

    assert changed is not None
    assert changed.tasks["work_ns"].tolist() == graph.tasks["work_ns"].tolist()


def test_a_calibration_for_other_shapes_is_not_taken() -> None:
    """A file left over from a run with another batch names the same operators."""
    shapes = ["[[4,8],[8,8]]", "[[4],[4,8]]", "[[]]", None, "[[8]]"]
    graph = linear_job(operators={**OPERATORS, "shapes": pd.Categorical(shapes)})
    of_four, of_sixteen = (f'[{{"dtype": "float32", "shape": [{n}]}}]' for n in (4, 16))

    taken = {
        arguments: apply_measured(
            attach(
                graph,
                calibration(
                    [("aten::addmm", arguments, 1_000.0), BEFORE[1]],
                    {CHANGE: [("aten::addmm", arguments, 500.0, 0), (*BEFORE[1], 1)]},
                ),
            ),
            channels_last,
        )
        is not None
        for arguments in (of_four, of_sixteen)
    }

    assert taken == {of_four: True, of_sixteen: False}


def test_what_stays_as_it_is_needs_no_time() -> None:
    """An operator with the same arguments keeps its recorded cost, timed or not."""
    graph = attach(
        linear_job(),
        calibration(
            [BEFORE[0], ("aten::relu", FP32, np.nan)],
            {CHANGE: [("aten::addmm", FP32, 500.0, 0), ("aten::relu", FP32, np.nan, 1)]},
        ),
    )

    changed = apply_measured(graph, channels_last)

    assert changed is not None
    assert changed.tasks["work_ns"].tolist() == [100, 500, 100, 400, 900]
