"""Arguments that several commands take, and what they do with them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foretrace.cli import completion

if TYPE_CHECKING:
    from foretrace.graph.model import Graph
    from foretrace.transforms.measured.calibration import Calibration

TraceFile = Annotated[
    Path,
    typer.Argument(
        metavar="TRACE", help="Kineto, Nsight or our own: a file, an archive, or a job's folder"
    ),
]
Transforms = Annotated[
    list[str],
    typer.Argument(
        metavar="TRANSFORM...",
        help="e.g. amp 'batch_size(n=64)'; or a .toml",
        autocompletion=completion.what_ifs,
    ),
]
WhatIfName = Annotated[
    str | None,
    typer.Argument(
        metavar="[NAME]",
        help="One of the list, or file.py:function.",
        autocompletion=completion.what_if_names,
    ),
]
PassedOn = Annotated[
    list[str] | None, typer.Argument(hidden=True, autocompletion=completion.models)
]
CalibrationFile = Annotated[
    str | None,
    typer.Option(
        "--calibration",
        metavar="FILE",
        help="What foretrace calibrate measured; default: TRACE.calibration.parquet if it is "
        "there; 'none' for rules alone.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
StepPattern = Annotated[
    str | None, typer.Option("--step", help="Regular expression of the range that marks one step.")
]


def show(report: object, *, json: bool) -> None:
    """Print *report* as one JSON object or as text, in colours where that is a terminal."""
    from foretrace.report.forms import as_json, as_text

    text = as_json(report) if json else as_text(report, terminal=sys.stdout.isatty())
    sys.stdout.write(text)


def graph_of(trace: Path, step: str | None = None) -> Graph:
    """Read *trace* and build its graph, with progress on a terminal."""
    from foretrace.graph.build import build
    from foretrace.tracer.readers.load import load
    from foretrace.util.progress import stage

    with stage(f"reading {trace.name}"):
        loaded = load(trace)
    with stage("building the graph"):
        return build(loaded, step_pattern=step)


def calibration_for(trace: Path, given: str | None) -> Calibration | None:
    """Read the calibration *given*, or the one beside *trace*, if any."""
    from foretrace.transforms.measured.calibration import calibration_path, read_calibration
    from foretrace.util.text_file import is_file

    if given == "none":
        return None
    if given is not None:
        return read_calibration(given)
    is_there = bool(trace.name) and is_file(calibration_path(trace))
    return read_calibration(calibration_path(trace)) if is_there else None


def calibrated_graph_of(trace: Path, step: str | None, given: str | None) -> Graph:
    """Read *trace* and build its graph, with what the calibration of it measured."""
    from foretrace.transforms.measured.job_identity import attach

    calibration = calibration_for(trace, given)
    graph = graph_of(trace, step)
    return graph if calibration is None else attach(graph, calibration)
