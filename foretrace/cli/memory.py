"""The command about memory: ``memory``."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer

from foretrace.cli import completion
from foretrace.cli.arguments import AsJson, StepPattern, TraceFile, show

MaybeTransforms = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[TRANSFORM]...",
        help="What-ifs, each tried alone and all together.",
        autocompletion=completion.what_ifs,
    ),
]


def memory(
    trace: TraceFile,
    transforms: MaybeTransforms = None,
    device: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="What it has to fit; default: the recorded device."),
    ] = None,
    snapshot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The allocator's own snapshot of the same job: its totals count."
        ),
    ] = None,
    step: StepPattern = None,
    json: AsJson = False,  # noqa: FBT002
) -> None:
    """Say who holds a job's memory, what fits, and what what-ifs change.

    TRACE may also be a snapshot alone, as torch.cuda.memory._dump_snapshot writes it.
    """
    from foretrace.analysis.memory import report_memory
    from foretrace.analysis.memory_snapshot import report_snapshot, with_totals
    from foretrace.errors import TraceError
    from foretrace.graph.build import build
    from foretrace.tracer.readers.load import load
    from foretrace.tracer.readers.memory_snapshot import is_snapshot, read_snapshot
    from foretrace.transforms.scenario import parse_scenario

    scenario = parse_scenario(transforms or [])
    if is_snapshot(trace):
        if scenario or snapshot or device:
            raise TraceError(
                f"{trace.name}: a snapshot alone tells of no what-if and no other device; give the "
                f"trace of the job, and the snapshot by --snapshot"
            )
        show(report_snapshot(read_snapshot(trace), trace.name), json=json)
        return
    loaded = load(trace)
    if snapshot is not None:
        loaded = with_totals(loaded, read_snapshot(snapshot))
    show(report_memory(build(loaded, step_pattern=step), scenario, device=device), json=json)
