"""Commands about what to do next: ``advise``, ``explain`` and ``sensitivity``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from foretrace.cli.arguments import (
    AsJson,
    CalibrationFile,
    StepPattern,
    TraceFile,
    Transforms,
    calibrated_graph_of,
    graph_of,
    show,
)

Plot = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Draw the curves too: .html, .png, .svg (needs matplotlib)."),
]


def advise(
    trace: TraceFile,
    step: StepPattern = None,
    calibration: CalibrationFile = None,
    json: AsJson = False,  # noqa: FBT002
) -> None:
    """Rank every what-if that applies to a job, alone and together."""
    from foretrace.analysis.advise import advise_from
    from foretrace.analysis.unchanged.baseline import replay_baseline
    from foretrace.util.progress import stage

    graph = calibrated_graph_of(trace, step, calibration)
    with stage("trying what-ifs"):
        advisory = advise_from(replay_baseline(graph))
    show(advisory, json=json)


def explain(
    trace: TraceFile,
    transforms: Transforms,
    step: StepPattern = None,
    calibration: CalibrationFile = None,
    json: AsJson = False,  # noqa: FBT002
) -> None:
    """Say why a what-if gains what it gains: what left the critical path, and what came onto it."""
    from foretrace.analysis.explain import explain_from
    from foretrace.analysis.unchanged.baseline import run_experiment
    from foretrace.transforms.scenario import parse_scenario

    scenario = parse_scenario(transforms)
    graph = calibrated_graph_of(trace, step, calibration)
    show(explain_from(run_experiment(graph, scenario)), json=json)


def sensitivity(
    trace: TraceFile,
    step: StepPattern = None,
    plot: Plot = None,
    json: AsJson = False,  # noqa: FBT002
) -> None:
    """Show the step time against each part of the job taking less time."""
    from foretrace.analysis.sensitivity import sensitivity_from
    from foretrace.analysis.unchanged.baseline import replay_baseline
    from foretrace.report.plot import check_plot, draw
    from foretrace.util.progress import stage

    if plot is not None:
        check_plot(plot)
    graph = graph_of(trace, step)
    with stage("replaying with each part faster"):
        curves = sensitivity_from(replay_baseline(graph))
    show(curves, json=json)
    if plot is not None:
        draw(curves, plot)
        sys.stderr.write(f"wrote {plot}\n")
