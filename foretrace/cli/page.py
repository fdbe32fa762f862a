"""Commands whose result people look at: ``report``, ``serve`` and ``export``."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from foretrace.cli.arguments import (
    CalibrationFile,
    StepPattern,
    TraceFile,
    calibrated_graph_of,
    graph_of,
)
from foretrace.cli.completion import what_ifs

MaybeTransforms = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[TRANSFORM...]",
        help="e.g. amp 'batch_size(n=64)'; or a .toml",
        autocompletion=what_ifs,
    ),
]
WholeJob = Annotated[
    Path | None,
    typer.Option("--job", metavar="FILE", help="Show the whole job, too: TOML, see docs/job.md."),
]


def report(
    trace: TraceFile,
    transforms: MaybeTransforms = None,
    out: Annotated[Path, typer.Option(help="Where to write the page.")] = Path("report.html"),
    job: WholeJob = None,
    step: StepPattern = None,
    calibration: CalibrationFile = None,
) -> None:
    """Write one page that shows a prediction, its reasons, and what else to try."""
    from foretrace import __version__
    from foretrace.analysis.prediction import predict_from
    from foretrace.analysis.unchanged.baseline import run_experiment
    from foretrace.job.whole import forecast_whole_job, read_job_description
    from foretrace.page.data import outlook, view
    from foretrace.page.html import write_page
    from foretrace.report.forms import as_keys, as_text
    from foretrace.transforms.scenario import parse_scenario
    from foretrace.util.atomic_write import check_writable
    from foretrace.util.progress import stage

    scenario = parse_scenario(transforms) if transforms else ()
    plan = None if job is None else read_job_description(job)
    check_writable(out)
    graph = calibrated_graph_of(trace, step, calibration)
    with stage("replaying"):
        experiment = run_experiment(graph, scenario)
        data = {**view(experiment), "version": __version__}
    with stage("trying what-ifs"):
        data |= outlook(experiment.baseline)
    prediction = predict_from(experiment)
    text = as_text(prediction)
    if plan is not None:
        answers = forecast_whole_job(graph, prediction, plan)
        data, text = {**data, "whole_job": as_keys(answers)}, text + as_text(answers)
    write_page(data, text, out)
    sys.stdout.write(f"wrote {out}: open it in a browser\n")


def serve(
    traces: Annotated[
        list[Path], typer.Argument(metavar="TRACE...", help="What can be asked about.")
    ],
    port: Annotated[int, typer.Option(min=0, max=65_535, help="0: any that is free.")] = 8765,
    step: StepPattern = None,
    calibration: CalibrationFile = None,
) -> None:
    """Show the page live on this machine: choose what-ifs, see the prediction change."""
    from foretrace import __version__
    from foretrace.page.server import ServedTrace, Site, listen
    from foretrace.util.progress import stage

    served = [
        ServedTrace(trace.name, calibrated_graph_of(trace, step, calibration)) for trace in traces
    ]
    with stage("replaying"):
        ready = [trace for trace in served if trace.baseline]
    with listen(Site(ready, __version__), port) as listening:
        place = f"http://localhost:{listening.server_address[1]}/"
        sys.stdout.write(f"serving {len(ready)} trace(s) at {place}; stop with Ctrl-C\n")
        sys.stdout.flush()
        for number in (signal.SIGINT, signal.SIGTERM):  # ignored where a shell started us aside
            signal.signal(number, signal.default_int_handler)
        listening.serve_forever()


def export(
    trace: TraceFile,
    transforms: MaybeTransforms = None,
    out: Annotated[Path, typer.Option(help="Where to write.")] = Path("timeline.json"),
    format: Annotated[  # noqa: A002 - what users call it
        str | None,
        typer.Option(
            help="json or pftrace (Perfetto), graphml (networkx), parquet (pandas), chakra; "
            "default: by the name of the file."
        ),
    ] = None,
    step: StepPattern = None,
) -> None:
    """Write a timeline for Perfetto, before and after side by side, or the graph for others."""
    from foretrace.analysis.error.change_doubts import doubt_change
    from foretrace.analysis.unchanged.baseline import run_experiment
    from foretrace.export.formats import FORMATS, export_as, format_of
    from foretrace.transforms.scenario import parse_scenario
    from foretrace.util.atomic_write import check_writable
    from foretrace.util.progress import stage

    wanted = format_of(out, format)
    scenario = parse_scenario(transforms) if transforms else ()
    check_writable(out)
    graph = graph_of(trace, step)
    with stage("replaying"):
        experiment = run_experiment(graph, scenario)
        written = export_as(wanted, experiment, out)
    for doubt in doubt_change(experiment):
        sys.stderr.write(f"foretrace: {doubt}\n")
    sys.stdout.write(f"wrote {', '.join(map(str, written))}: {FORMATS[wanted].hint}\n")
