"""``foretrace job runtime``: how long a job takes, from what some of its steps took."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foretrace.cli.arguments import (
    AsJson,
    CalibrationFile,
    StepPattern,
    calibration_for,
    graph_of,
    show,
)

if TYPE_CHECKING:
    from foretrace.analysis.prediction import Prediction
    from foretrace.job.runtime.recorded_steps import StepSamples

SamplesFile = Annotated[
    Path,
    typer.Argument(
        metavar="SAMPLES",
        help="A recording; or what each step took, from the first on: CSV, .npy, JSON or a log.",
    ),
]
WhatIfs = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TRANSFORM...]", help="The same job after a change, e.g. amp."),
]
Count = Annotated[int, typer.Option("--steps", min=1, max=10**15, help="Steps of the whole job.")]
Skip = Annotated[
    int | None,
    typer.Option(min=0, help="Samples of the start-up; more may be found. Default: 1."),
]
Size = Annotated[
    int | None,
    typer.Option("--sample", min=1, help="Average so many after them; the rest is a check."),
]
Within = Annotated[
    float, typer.Option(metavar="PERCENT", help="How far off the total may be; for the advice.")
]
Column = Annotated[
    str | None, typer.Option(metavar="NAME", help="The column or key with the times of steps.")
]
Recording = Annotated[
    Path | None,
    typer.Option("--trace", metavar="TRACE", help="What the what-ifs change, if SAMPLES is a log."),
]


def runtime(
    samples: SamplesFile,
    transforms: WhatIfs = None,
    *,
    steps: Count,
    skip: Skip = None,
    sample: Size = None,
    within: Within = 5.0,
    column: Column = None,
    trace: Recording = None,
    step: StepPattern = None,
    calibration: CalibrationFile = None,
    json: AsJson = False,
) -> None:
    """Say how long a job takes from some of its steps, and how long after a change."""
    from foretrace.job.runtime.report import RuntimeQuestion, runtime_report

    recorded, change = _read(samples, column, transforms, trace, step, calibration)
    question = RuntimeQuestion(steps, recorded.skip if skip is None else skip, sample, within / 100)
    show(runtime_report(recorded, question, change), json=json)


def _read(
    samples: Path,
    column: str | None,
    transforms: list[str] | None,
    trace: Path | None,
    step: str | None,
    calibration: str | None,
) -> tuple[StepSamples, Prediction | None]:
    """Return the steps, and what what-ifs make of a recording: of the steps' own, or *trace*."""
    from foretrace.analysis.prediction import predict
    from foretrace.errors import RefusedError
    from foretrace.job.runtime.recorded_steps import (
        is_trace,
        read_logged_steps,
        read_recorded_steps,
    )
    from foretrace.transforms.scenario import parse_scenario

    scenario = parse_scenario(transforms or ())
    recording = samples if is_trace(samples) else trace
    if recording is None:
        if scenario:
            raise RefusedError(f"{samples}: no recording that a what-if could change; give --trace")
        return read_logged_steps(samples, column), None
    if recording == samples and column is not None:
        raise RefusedError("column: of a table only, and SAMPLES is a recording")
    graph = graph_of(recording, step)
    recorded = (
        read_recorded_steps(graph) if recording == samples else read_logged_steps(samples, column)
    )
    if not scenario:
        return recorded, None
    return recorded, predict(graph, scenario, calibration_for(recording, calibration))
