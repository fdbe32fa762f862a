"""``foretrace job resources``: throughput over CPU cores and cached data."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foretrace.cli.arguments import AsJson, graph_of, show

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foretrace.graph.model import Graph
    from foretrace.job.report import JobReport
    from foretrace.job.resources.file import Resources
    from foretrace.job.resources.grid import LoadingJob, SurveyRow

File = Annotated[
    Path, typer.Argument(metavar="FILE", help="TOML: the job, the machine, what to try, prices.")
]
Within = Annotated[
    float, typer.Option(metavar="PERCENT", help="The cheapest point at most this far off the best.")
]
Trace = Annotated[
    Path | None,
    typer.Option(metavar="TRACE", help="A recording: gives what FILE leaves out, and a replay."),
]
ProbeCores = Annotated[
    bool, typer.Option("--probe-cores", help="Measure the effective cores of this machine.")
]
Plot = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Draw it: .html, .png, .svg (needs matplotlib)."),
]


def resources(
    file: File,
    within: Within = 5.0,
    trace: Trace = None,
    probe_cores: ProbeCores = False,  # noqa: FBT002
    plot: Plot = None,
    json: AsJson = False,  # noqa: FBT002
) -> None:
    """Show throughput over CPU cores and cached data, and the cheapest point near the best."""
    from foretrace.job.resources.file import read_resources
    from foretrace.job.resources.grid import choose_cheapest, survey
    from foretrace.job.resources.recorded_loader import job_of, machine_of
    from foretrace.report.plot import check_plot

    given = read_resources(file)
    if plot is not None:
        check_plot(plot)
    graph = None if trace is None else graph_of(trace)
    job = job_of(given, graph)
    machine = machine_of(given, graph, probe=probe_cores)
    rows = survey(
        job,
        machine,
        cores=given.grid.cores,
        cache=given.grid.cache,
        workers=given.grid.workers,
        price=given.price,
    )
    best = choose_cheapest(rows, within / 100)
    report = _report(given, rows, best, within)
    show(report if graph is None else _add_replay(report, graph, job, rows), json=json)
    if plot is not None:
        from foretrace.job.resources.plot import draw_resources

        draw_resources(rows, best, plot)
        sys.stderr.write(f"wrote {plot}\n")


def _add_replay(
    report: JobReport, graph: Graph, job: LoadingJob, rows: Sequence[SurveyRow]
) -> JobReport:
    """Return *report* with what the replay makes of the loader, and why not to believe it."""
    from foretrace.analysis.unchanged.baseline import replay_baseline
    from foretrace.job.report import Table
    from foretrace.job.resources.recorded_loader import compare_loaders

    baseline = replay_baseline(graph)
    beside = compare_loaders(baseline, job, {row.workers for row in rows})
    table = Table(
        "Loading as recorded, ms per step",
        ("workers", "closed form", "replay"),
        [(each.workers, each.form_ms, each.replay_ms) for each in beside],
    )
    return replace(
        report,
        tables=[*report.tables, table],
        warnings=baseline.graph.notes,
        doubts=baseline.doubts,
    )


def _report(
    given: Resources, rows: Sequence[SurveyRow], best: SurveyRow, within: float
) -> JobReport:
    from foretrace.job.report import JobReport, Table

    currency = "" if given.price is None else given.price.currency
    answers = {"throughput": best.speed, "epoch": best.epoch}
    if best.price is not None:
        answers["cost of an epoch"] = best.epoch.scale(best.price / 3600, currency)
    return JobReport(
        title=f"Cheapest within {within:g} % of the best: {_in_words(best)}",
        answers=answers,
        tables=[Table("Samples per second", _columns(currency), [_cells(row) for row in rows])],
        assumptions=_assumptions(given),
    )


def _in_words(row: SurveyRow) -> str:
    cores, workers = row.cores, row.workers
    return (
        f"{cores} core{'s' * (cores > 1)}, {workers} loader worker{'s' * (workers != 1)}, "
        f"{row.cache:.0%} of the data cached"
    )


def _columns(currency: str) -> tuple[str, ...]:
    columns = (
        "cores", "cached", "workers", "fixed cache", "low", "high", "limited by",
        "page cache", "Synergy",
    )  # fmt: skip
    return (*columns, f"{currency} per hour", f"{currency} per epoch") if currency else columns


def _cells(row: SurveyRow) -> tuple[float | str | int | None, ...]:
    cells = (
        row.cores,
        f"{row.cache:.0%}",
        row.workers,
        row.speed.value,
        row.speed.low,
        row.speed.high,
        row.limit,
        row.recent_speed,
        row.synergy_speed,
    )
    return cells if row.price is None else (*cells, row.price, row.epoch_price)


def _assumptions(given: Resources) -> list[str]:
    assumptions = [
        "fixed cache: the same items stay in memory",
        "page cache: the items used last stay, and every epoch reads all in a new random order",
        "a worker reads and then prepares; all share the disk",
    ]
    if given.price is None:
        assumptions.append(
            "without prices the cheapest has the fewest cores, then the smallest cache"
        )
    if given.grid.workers is None:
        assumptions.append("as many workers as make it fastest, up to twice the cores")
    return assumptions
