"""``foretrace job whole``: step, job time, steps to a loss and cost in one, after a change."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foretrace.cli.arguments import (
    AsJson,
    CalibrationFile,
    StepPattern,
    TraceFile,
    calibrated_graph_of,
    show,
)

WhatIfs = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TRANSFORM...]", help="The change, e.g. amp 'ddp(workers=4)'."),
]
DescriptionFile = Annotated[
    Path, typer.Option("--job", metavar="FILE", help="What the job is, TOML: see docs/job.md.")
]


def whole(
    trace: TraceFile,
    transforms: WhatIfs = None,
    *,
    job: DescriptionFile,
    step: StepPattern = None,
    calibration: CalibrationFile = None,
    json: AsJson = False,
) -> None:
    """Say how long a recorded job takes in all and what it costs, before and after a change."""
    from foretrace.analysis.prediction import predict
    from foretrace.errors import RefusedError
    from foretrace.job.whole import REFUSED, forecast_whole_job, read_job_description
    from foretrace.transforms.scenario import parse_scenario

    description, scenario = read_job_description(job), parse_scenario(transforms or ())
    graph = calibrated_graph_of(trace, step, calibration)
    report = forecast_whole_job(graph, predict(graph, scenario), description)
    if not report.answers:
        raise RefusedError(next(text for text in report.warnings if text.startswith(REFUSED)))
    show(report, json=json)
