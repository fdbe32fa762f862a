"""The command ``diff``: why two recordings of a job take different times."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer

from foretrace.cli.arguments import AsJson, StepPattern, TraceFile, graph_of, show


def diff(
    before: TraceFile,
    after: Annotated[
        Path, typer.Argument(metavar="AFTER", help="Another recording of it, or another rank.")
    ],
    step: StepPattern = None,
    json: AsJson = False,  # noqa: FBT002
) -> None:
    """Say why the step of one recording takes longer than that of another of the same job."""
    from foretrace.analysis.difference.difference import diff
    from foretrace.util.progress import stage

    graphs = graph_of(before, step), graph_of(after, step)
    with stage("exchanging parts"):
        found = diff(*graphs)
    show(found, json=json)
