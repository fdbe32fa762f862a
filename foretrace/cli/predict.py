"""Commands about a change: ``whatif``, ``validate``, and ``transforms``, which lists them."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer

from foretrace.cli.arguments import (
    AsJson,
    CalibrationFile,
    StepPattern,
    TraceFile,
    Transforms,
    WhatIfName,
    calibration_for,
    graph_of,
    show,
)


def whatif(
    trace: TraceFile,
    transforms: Transforms,
    step: StepPattern = None,
    calibration: CalibrationFile = None,
    json: AsJson = False,  # noqa: FBT002
) -> None:
    """Predict the step time after one or more what-ifs."""
    from foretrace.analysis.prediction import predict
    from foretrace.transforms.scenario import parse_scenario

    scenario = parse_scenario(transforms)
    measured = calibration_for(trace, calibration)
    show(predict(graph_of(trace, step), scenario, measured), json=json)


def validate(
    before: TraceFile,
    after: Annotated[Path, typer.Argument(metavar="AFTER", help="The trace of the changed job.")],
    transforms: Transforms,
    measured_ms: Annotated[
        float | None,
        typer.Option(help="Measured step time after, if known better than AFTER shows."),
    ] = None,
    step: StepPattern = None,
    calibration: CalibrationFile = None,
    json: AsJson = False,  # noqa: FBT002
) -> None:
    """Compare a prediction with what was measured, next to two null models."""
    from foretrace.analysis import validation
    from foretrace.transforms.scenario import parse_scenario

    scenario = parse_scenario(transforms)
    measured_ns = None if measured_ms is None else measured_ms * 1e6
    measured = calibration_for(before, calibration)
    graphs = graph_of(before, step), graph_of(after, step)
    outcome = validation.validate(*graphs, scenario, measured_ns=measured_ns, calibration=measured)
    show(outcome, json=json)


def list_transforms(name: WhatIfName = None, json: AsJson = False) -> None:  # noqa: FBT002
    """List the what-ifs, or show the one called NAME in full."""
    from foretrace.analysis.whatif_catalog import find_entry, list_what_ifs

    show(list_what_ifs() if name is None else find_entry(name), json=json)
