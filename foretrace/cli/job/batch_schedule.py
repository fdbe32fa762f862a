"""``foretrace job regimes``: how long a training takes whose batch size changes."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Annotated

import typer

from foretrace.cli.arguments import AsJson, CalibrationFile, calibration_for, graph_of, show

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foretrace.analysis.unchanged.baseline import Baseline
    from foretrace.graph.state import Doubt
    from foretrace.job.batch_schedule.epoch_costs import EpochCost
    from foretrace.job.batch_schedule.forecast import RegimeForecast, TrainingSoFar
    from foretrace.job.report import JobReport

Epochs = Annotated[
    Path,
    typer.Argument(
        metavar="EPOCHS",
        help="CSV with the columns batch_size and seconds, one row per epoch so far; the seconds "
        "of the last are empty while it runs.",
    ),
]
Total = Annotated[
    int | None,
    typer.Option(
        "--epochs", min=1, max=1_000_000, help="Epochs of the whole job; a schedule says it, too."
    ),
]
Schedule = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="The whole schedule, e.g. '16*10 64*10 256*10'."),
]
Rising = Annotated[bool, typer.Option("--rising", help="The batch size never falls.")]
Costs = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="CSV with batch_size and seconds per epoch [and error]."),
]
Traces = Annotated[
    list[Path] | None,
    typer.Option("--trace", metavar="TRACE", help="A recording of the job; several: of each size."),
]
Samples = Annotated[
    int | None, typer.Option(help="Samples of an epoch; needed with --trace.", min=1, max=10**12)
]
Modes = Annotated[
    str | None, typer.Option(metavar="SIZES", help="Batch sizes it may use, e.g. '16,64,256'.")
]


def regimes(
    epochs_so_far: Epochs,
    epochs: Total = None,
    schedule: Schedule = None,
    rising: Rising = False,  # noqa: FBT002
    costs: Costs = None,
    trace: Traces = None,
    samples: Samples = None,
    modes: Modes = None,
    calibration: CalibrationFile = None,
    json: AsJson = False,  # noqa: FBT002
) -> None:
    """Forecast a training whose batch size changes: Accordion, GNS or a schedule of your own."""
    from foretrace.job.batch_schedule.file import parse_schedule, read_epochs
    from foretrace.job.batch_schedule.forecast import TrainingSoFar, forecast_regimes

    sizes, seconds = read_epochs(epochs_so_far)
    planned = None if schedule is None else parse_schedule(schedule)
    wanted = _modes(modes, (*sizes, *(planned or ())))
    recordings = _recordings(trace or [], samples)
    training = TrainingSoFar(
        sizes=sizes,
        seconds=seconds,
        epochs=_total(epochs, planned),
        costs=_costs(costs, recordings, samples, wanted, calibration),
        schedule=planned,
        rising=rising,
    )
    report = _report(training, forecast_regimes(training), _warnings(recordings))
    show(replace(report, doubts=_doubts(recordings)), json=json)


def _total(epochs: int | None, planned: tuple[int, ...] | None) -> int:
    from foretrace.errors import RefusedError

    if epochs is None and planned is None:
        raise RefusedError("how many epochs the job has is not known; give --epochs or --schedule")
    return len(planned or ()) if epochs is None else epochs


def _modes(text: str | None, sizes: tuple[int, ...]) -> list[int]:
    """Return every batch size that the job may use."""
    from foretrace.errors import RefusedError

    given = (text or "").replace(",", " ").split()
    wrong = [part for part in given if not re.fullmatch(r"[1-9]\d{0,8}", part, re.ASCII)]
    if wrong:
        raise RefusedError(f"modes: {shorten(wrong[0], 40)!r} is no batch size")
    return sorted({*sizes, *map(int, given)})


def _recordings(traces: list[Path], samples: int | None) -> dict[Path, Baseline]:
    from foretrace.analysis.unchanged.baseline import replay_baseline
    from foretrace.errors import RefusedError

    if traces and samples is None:
        raise RefusedError("how many samples an epoch has is not known; give --samples")
    return {path: replay_baseline(graph_of(path)) for path in traces}


def _doubts(recordings: dict[Path, Baseline]) -> list[Doubt]:
    """Say why recordings cannot be trusted, and which."""
    return [
        doubt._replace(place=", ".join(filter(None, (path.name, doubt.place))))
        for path, each in recordings.items()
        for doubt in each.doubts
    ]


def _warnings(recordings: dict[Path, Baseline]) -> list[str]:
    """Say what is odd about recordings, and which."""
    return [
        f"{path.name}: {text}" for path, each in recordings.items() for text in each.graph.notes
    ]


def _costs(
    costs: Path | None,
    recordings: dict[Path, Baseline],
    samples: int | None,
    sizes: list[int],
    calibration: str | None,
) -> dict[int, EpochCost]:
    """Return what is known beforehand of the cost of an epoch; a table goes before recordings."""
    from foretrace.job.batch_schedule.file import read_costs

    given = {} if costs is None else read_costs(costs)
    if not recordings or samples is None:
        return given
    from foretrace.job.batch_schedule.simulated_costs import epoch_costs

    measured = calibration_for(next(iter(recordings)), calibration)
    return epoch_costs([*recordings.values()], sizes, samples, measured) | given


def _report(
    training: TrainingSoFar, forecast: RegimeForecast, warnings: Sequence[str]
) -> JobReport:
    from foretrace.job.report import JobReport, Table

    rules = [
        ("this forecast", forecast.total.value, forecast.total.low, forecast.total.high),
        ("Dirichlet (Shockwave)", forecast.dirichlet_total, None, None),
        ("last epoch repeated", forecast.naive_total, None, None),
    ]
    modes = [
        (size, cost.seconds, 100 * cost.doubt, cost.seen, forecast.left[size])
        for size, cost in forecast.seconds.items()
    ]
    return JobReport(
        title=f"Epoch {len(training.seconds) + 1} of {training.epochs}, "
        f"{training.sizes[-1]} samples per step",
        answers={"whole job": forecast.total, "remaining": forecast.remaining},
        tables=[
            Table("Whole job, s", ("rule", "seconds", "low", "high"), rules),
            Table(
                "Batch sizes",
                ("samples", "s per epoch", "± % (sd)", "epochs seen", "epochs left"),
                modes,
            ),
        ],
        assumptions=[_assumed(training), "the machine stays as fast as it was"],
        warnings=warnings,
    )


def _assumed(training: TrainingSoFar) -> str:
    if training.schedule is not None:
        return "the job follows the schedule"
    if training.rising:
        return "the batch size never falls, and every size above this one is still to come"
    return "every size not seen so far is still to come; others return as often as they did"
