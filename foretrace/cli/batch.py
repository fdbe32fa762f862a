"""Commands about many jobs: ``batch`` and ``compare``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from foretrace.cli.arguments import AsJson, show


class Backend(StrEnum):
    """Where a batch runs, as joblib calls it."""

    LOKY = "loky"
    DASK = "dask"
    RAY = "ray"


def batch(
    study: Annotated[Path, typer.Argument(metavar="STUDY.toml", help="What to predict of what.")],
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Workers; by default one per core.")
    ] = None,
    backend: Annotated[Backend, typer.Option(help="Where the workers are.")] = Backend.LOKY,
    address: Annotated[
        str | None, typer.Option(help="Scheduler of the cluster, as tcp://host:8786.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("batch"),
    json: AsJson = False,  # noqa: FBT002
) -> int:
    """Predict many what-ifs of many jobs; what is known already is not done again.

    Exit code 1 if every item failed, or results could not be written.
    """
    from foretrace.batch.run import run_batch

    if (backend is Backend.LOKY) != (address is None):
        raise typer.BadParameter("--address goes with --backend dask or ray, and with no other")
    outcome = run_batch(study, out, jobs=jobs, backend=backend.value, address=address)
    _show(outcome, json=json)
    return int(outcome.unwritten > 0 or all(row.error for row in outcome.rows))


def compare(
    results: Annotated[Path, typer.Argument(metavar="RESULTS", help="Of foretrace batch.")],
    reference: Annotated[
        Path | None, typer.Argument(metavar="[REFERENCE]", help="Earlier results to hold against.")
    ] = None,
    tolerance: Annotated[
        float, typer.Option(help="Percentage points by which errors may grow.")
    ] = 0.5,
    markdown: Annotated[
        Path | None, typer.Option(help="Also write a page of Markdown, with every item.")
    ] = None,
    json: AsJson = False,  # noqa: FBT002
) -> int:
    """Show errors by what-if and model; exit code 1 if they are worse than in REFERENCE."""
    from foretrace.batch.compare import judge
    from foretrace.batch.compare_markdown import render_markdown
    from foretrace.batch.rows import read_rows
    from foretrace.util.atomic_write import write_atomically

    if not tolerance >= 0:  # NaN is not, either
        raise typer.BadParameter(f"--tolerance is {tolerance:g}, expected 0 or more")
    earlier = None if reference is None else read_rows(reference)
    comparison = judge(read_rows(results), earlier, tolerance=tolerance / 100)
    if markdown is not None:
        write_atomically(markdown, render_markdown(comparison).encode())
    _show(comparison, json=json)
    return int(bool(comparison.worse))


def _show(report: Any, *, json: bool) -> None:
    import foretrace.batch.report  # noqa: F401  # registers the forms of these reports

    show(report, json=json)
