"""Commands that record: one job, pairs of a change that is made."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from foretrace.cli.arguments import PassedOn  # noqa: TC001 - typer reads the annotations

PASSED_ON: dict[str, Any] = {
    "context_settings": {"ignore_unknown_options": True},
    "add_help_option": False,
}
"""Settings of a command that reads its own arguments."""


def record(
    target: Annotated[
        str, typer.Argument(help="file.py:function or module:function, returns a job")
    ],
    steps: Annotated[int, typer.Option(min=1, help="Steps in the recorded window.")] = 5,
    out: Annotated[Path, typer.Option(help="Where to write the trace.")] = Path("trace.parquet"),
) -> None:
    """Record a few real iterations of a job."""
    from foretrace.analysis.unchanged.identity import identity
    from foretrace.graph.build import build
    from foretrace.tracer.data_issues import disturbances, sentences
    from foretrace.tracer.job import load_job
    from foretrace.tracer.readers.parquet import check_place
    from foretrace.tracer.recording.process_rank import file_of_rank, process_rank
    from foretrace.tracer.recording.record import record as record_job
    from foretrace.util.progress import stage

    check_place(out)
    job = load_job(target)
    with stage(f"recording {job.name}"):
        trace = record_job(job, steps=steps, out=out)
    found = identity(build(trace))
    step_ms = found.measured.step_ns / 1e6
    out = file_of_rank(out, process_rank())
    sys.stdout.write(f"wrote {out}: a step of {step_ms:.2f} ms, replayed {found.error:+.1%}\n")
    doubted = list(map(str, found.doubts))
    busy = sentences(disturbances(trace.meta.warnings))
    new = [text for text in busy if not any(text in doubt for doubt in doubted)]
    for text in dict.fromkeys((*doubted, *found.warnings, *new)):
        sys.stderr.write(f"foretrace: {text}\n")


def record_pairs(arguments: PassedOn = None) -> int:
    """Record measured before/after pairs over models and variants."""
    from foretrace.cli.record_pairs import main as record

    return record(arguments or [])
