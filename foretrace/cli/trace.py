"""Commands about a recording as it is: ``import``, ``summary`` and ``replay``."""

from __future__ import annotations

import sys
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer

from foretrace.cli.arguments import AsJson, StepPattern, TraceFile, graph_of, show


def import_traces(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="One file per rank.")],
    out: Annotated[Path, typer.Option(help="Where to write the trace.")],
) -> None:
    """Convert recordings, several ranks at once, into one trace file."""
    from foretrace.tracer.readers.load import load, save
    from foretrace.tracer.readers.parquet import check_place
    from foretrace.util.progress import stage

    check_place(out)
    with stage(f"reading {len(files)} file(s)"):
        trace = load(files if len(files) > 1 else files[0])
    save(trace, out)
    sys.stdout.write(
        f"wrote {out}: {len(trace.events):,} events of {len(trace.meta.ranks)} rank(s)\n"
    )


def summary(trace: TraceFile, step: StepPattern = None, json: AsJson = False) -> None:  # noqa: FBT002
    """Say what is in a trace and where the time goes."""
    from foretrace.analysis.summary import summarise
    from foretrace.tracer.readers.load import load

    show(summarise(load(trace), step_pattern=step), json=json)


def replay(trace: TraceFile, step: StepPattern = None, json: AsJson = False) -> None:  # noqa: FBT002
    """Replay a trace unchanged and compare with its measured step."""
    from foretrace.analysis.unchanged.identity import identity

    show(identity(graph_of(trace, step)), json=json)
