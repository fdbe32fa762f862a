"""From a real job to a prediction on measured costs: recorded, timed, written, read, replayed."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from foretrace.analysis.prediction import predict
from foretrace.graph.build import build
from foretrace.tracer.calibration.file import write
from foretrace.tracer.job import Job
from foretrace.tracer.recording.record import record
from foretrace.transforms.measured.calibration import Calibration, read_calibration
from foretrace.transforms.scenario import parse_scenario

torch = pytest.importorskip("torch")

from foretrace.tracer.calibration.calibrate import calibrate  # noqa: E402 - needs torch
from foretrace.tracer.calibration.fake_run import JobChange  # noqa: E402

if TYPE_CHECKING:
    from pathlib import Path

    from foretrace.graph.model import Graph


def tiny_job(batch_size: int = 32) -> Job:
    """Return two linear layers trained by Adam."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 64)
    )
    optimizer = torch.optim.Adam(network.parameters(), foreach=False)
    samples = torch.randn(batch_size, 64)

    def step() -> None:
        optimizer.zero_grad()
        network(samples).square().mean().backward()
        optimizer.step()

    return Job(step, network, optimizer, batch_size, name="tiny")


CHANGES = {
    "batch_size(n=64)": JobChange("batch_size", {"n": 64}, partial(tiny_job, 64)),
    'fused_optimizer(kind="fused")': JobChange("fused_optimizer", {"kind": "fused"}, tiny_job),
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: Any) -> tuple[Graph, Calibration]:
    """Return the graph of the job and its calibration, both read back from files."""
    folder: Path = tmp_path_factory.mktemp("calibrated")
    job = tiny_job()
    graph = build(record(job, steps=3))
    calibration = calibrate(job, tiny_job, list(CHANGES.values()), seconds=30)
    path = folder / "tiny.calibration.parquet"
    write(calibration.rows, calibration.where, path)
    return graph, read_calibration(path)


@pytest.mark.parametrize("text", CHANGES)
def test_a_real_job_is_predicted_from_measured_costs(
    recorded: tuple[Graph, Calibration], text: str
) -> None:
    """The lists of both sides meet: what changes is measured, and says so."""
    graph, calibration = recorded

    prediction = predict(graph, parse_scenario([text]), calibration)

    assert prediction.costs["measured"] > 0
    assert any("measured" in note for note in prediction.assumptions)
    assert not any("does not cover" in warning for warning in prediction.warnings)


def test_every_operator_of_the_recording_is_found(recorded: tuple[Graph, Calibration]) -> None:
    """Forward and backward of the small job are covered whole but for what wraps operators."""
    graph, calibration = recorded

    prediction = predict(graph, parse_scenario(["batch_size(n=64)"]), calibration)

    covered = next(n for n in prediction.assumptions if "measured operator by operator" in n)
    assert int(covered.split("operator, ")[1].split("%")[0]) >= 70
