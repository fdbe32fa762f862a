"""A calibration of another job is refused, left out, or doubted aloud."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from foretrace.analysis.prediction import predict
from foretrace.errors import TransformError
from foretrace.transforms.measured.calibration import calibration_of
from foretrace.transforms.measured.job_identity import attach, is_same_job
from foretrace.transforms.scenario import parse_scenario
from tests.support.jobs.operators import BEFORE, linear_job
from tests.support.jobs.simple import gpu_job
from tests.support.recordings.calibrations import FP32, calibration

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

SEGMENTS = {("optimizer", ""): 3_000.0, ("optimizer", "fused_optimizer()"): 1_000.0}
FUSED = "fused_optimizer(kind='fused')"


def recorded(**meta: Any) -> Graph:
    """Return the job of the measured costs, with more known of it."""
    graph = linear_job()
    return replace(graph, meta=replace(graph.meta, **meta))


@pytest.mark.parametrize(
    ("owner", "meta"),
    [
        ("optimizer", {"optimizer": {"kind": "loop", "bytes": 800}}),
        ("model", {"extra": {"parameters": [["weight", [10, 10], 4], ["bias", [100], 4]]}}),
    ],
)
def test_other_parameters_are_another_job(owner: str, meta: dict[str, Any]) -> None:
    """800 bytes were recorded; 4,000 were calibrated."""
    told = replace(calibration(BEFORE), source="old.parquet", parameter_bytes={owner: 4_000})

    with pytest.raises(TransformError) as refused:
        attach(recorded(**meta), told)
    assert str(refused.value) == (
        f"old.parquet is of another job: its {owner} has 4,000 bytes of parameters, the recorded "
        "one 800; calibrate again, or go without (--calibration none)"
    )
    assert calibration_of(attach(recorded(**meta), replace(told, parameter_bytes={owner: 800})))


@pytest.mark.parametrize(
    ("sizes", "parameters"),
    [({"model": 8}, "nonsense"), ({"model": "8"}, [["w", [1], 4]]), ({}, [])],
)
def test_what_is_not_known_of_either_is_no_difference(sizes: Any, parameters: Any) -> None:
    """Files of others may say anything there."""
    told = replace(calibration(BEFORE), parameter_bytes=sizes)

    assert calibration_of(attach(recorded(extra={"parameters": parameters}), told))


def test_segments_of_another_job_are_not_taken() -> None:
    """Its operators are not the recorded ones: the update of that job says nothing of this one."""
    mine = calibration(BEFORE, segments=SEGMENTS)
    other = calibration([("aten::tanh", FP32, 1.0)], segments=SEGMENTS)
    scenario = parse_scenario([FUSED])
    machine = {"copy_gbps": 10.0}
    optimizer = {"kind": "loop", "bytes": 800}
    graph = recorded(machine=machine, optimizer=optimizer)

    taken, refused = (predict(graph, scenario, told) for told in (mine, other))

    assert "measured" in taken.costs
    assert "measured" not in refused.costs
    assert any("other operators than were recorded" in text for text in refused.warnings)
    assert is_same_job(graph, mine.before)
    assert not is_same_job(graph, other.before)


def test_without_operators_there_is_nothing_to_compare() -> None:
    """A list of segments alone, or a recording that shows no operators, is believed."""
    alone = calibration([], segments=SEGMENTS)

    assert calibration_of(attach(linear_job(), alone)) is alone
    assert is_same_job(gpu_job(), calibration(BEFORE).before)


def test_another_name_is_doubted() -> None:
    """It may be the same job all the same."""
    told = replace(calibration(BEFORE), job="small")
    graph = attach(recorded(extra={"job": "large"}), told)

    assert graph.notes == ("the calibration is of another job: small, recorded on large",)
    assert calibration_of(graph) is told
    assert attach(recorded(extra={"job": "small"}), told).notes == ()
