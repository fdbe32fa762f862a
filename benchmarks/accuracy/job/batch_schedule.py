"""Trainings with changing batch sizes, forecast while they run: section of docs/accuracy-job.md.

In: what every epoch of real trainings took, and recordings of single steps made before them. Out:
how far off the total time is that is foretold after a tenth, a quarter, a half, three quarters.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from benchmarks.accuracy.markdown import percent, table
from foretrace.analysis.unchanged.baseline import replay_baseline
from foretrace.errors import RefusedError
from foretrace.graph.build import build
from foretrace.job.batch_schedule.forecast import TrainingSoFar, forecast_regimes
from foretrace.job.batch_schedule.simulated_costs import epoch_costs
from foretrace.tracer.readers.load import load
from foretrace.transforms.measured.calibration import read_calibration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from foretrace.job.batch_schedule.epoch_costs import EpochCost
    from foretrace.job.batch_schedule.forecast import RegimeForecast

FOLDER = "batch-schedules"
PROGRESS = (0.1, 0.25, 0.5, 0.75)
SMALL, LARGE = 16, 256
TEXT = """\
Real trainings on two cores, each by two schedules and each twice.
Asked is the time of the whole job after a share of its epochs; single steps were recorded before.
"Two recordings" are of 16 and 256 samples per step, with operators interpolated in between; "one" \
is of 16, and `batch_size` predicts the rest, with or without `foretrace calibrate`.
"Sizes only" is told which batch sizes there are and that they rise, and nothing of the schedule.
Shockwave's rule and the last epoch repeated know nothing of it either; the first has the costs of \
two recordings.
"""


class Run(NamedTuple):
    """One training: its model, schedule and repeat, samples of an epoch, and what epochs took."""

    name: str
    model: str
    samples: int
    sizes: tuple[int, ...]
    seconds: tuple[float, ...]


@dataclass(frozen=True)
class ScheduleTrial:
    """One question: the forecast, None where it was refused, and the true time."""

    forecast: RegimeForecast | None
    truth: float

    @property
    def error(self) -> float:
        """Relative error of the forecast."""
        assert self.forecast is not None
        return self.forecast.total.value / self.truth - 1

    @property
    def is_held(self) -> bool:
        """Whether the interval holds the truth."""
        assert self.forecast is not None
        return self.forecast.total.low <= self.truth <= self.forecast.total.high


def regimes_section(recorded: Path) -> list[str]:
    """Return the section of the page; *recorded* is the folder of own recordings."""
    runs = read_runs(recorded / FOLDER / "epochs.csv")
    costs = {model: costs_of(recorded / FOLDER, model, runs) for model in {r.model for r in runs}}
    ways: dict[str, Callable[[Run, float], ScheduleTrial]] = {
        f"schedule, {way}": partial(_ask_known, costs, way, True) for way in WAYS
    }
    ways["sizes only, two recordings"] = partial(_ask_known, costs, "two recordings", False)
    trials = {way: [[ask(run, at) for run in runs] for at in PROGRESS] for way, ask in ways.items()}
    return [
        "## Changing batch sizes",
        "",
        TEXT,
        *_summary(trials),
        "",
        "Each run with its schedule and two recordings, errors of the total:",
        "",
        *_each(runs, trials["schedule, two recordings"]),
    ]


def read_runs(path: Path) -> list[Run]:
    """Return the trainings in a CSV file with one row per epoch."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    trainings = []
    for (model, schedule, repeat), epochs in groupby(
        rows, key=lambda row: (row["model"], row["schedule"], row["repeat"])
    ):
        each = list(epochs)
        sizes = tuple(int(row["batch_size"]) for row in each)
        seconds = tuple(float(row["seconds"]) for row in each)
        name = f"{model}, {schedule}, {int(repeat) + 1}"
        trainings.append(Run(name, model, int(each[0]["samples"]), sizes, seconds))
    return trainings


def costs_of(folder: Path, model: str, runs: Iterable[Run]) -> dict[str, dict[int, EpochCost]]:
    """Return the costs of an epoch of *model* at every size, by each of `WAYS`."""
    mine = [run for run in runs if run.model == model]
    sizes = sorted({size for run in mine for size in run.sizes})
    small, large = (
        replay_baseline(build(load(folder / f"{model}-{size}.parquet"))) for size in (SMALL, LARGE)
    )
    measured = read_calibration(folder / f"{model}-{SMALL}.calibration.parquet")
    given = {
        "two recordings": ([small, large], None),
        "one recording, calibrated": ([small], measured),
        "one recording": ([small], None),
    }
    return {way: epoch_costs(b, sizes, mine[0].samples, c) for way, (b, c) in given.items()}


WAYS = ("two recordings", "one recording, calibrated", "one recording")


def _ask_known(
    costs: Mapping[str, Mapping[str, Mapping[int, EpochCost]]],
    way: str,
    planned: bool,  # noqa: FBT001 - bound once, by position
    run: Run,
    at: float,
) -> ScheduleTrial:
    return ask(run, at, costs[run.model][way], planned=planned)


def ask(run: Run, at: float, costs: Mapping[int, EpochCost], *, planned: bool) -> ScheduleTrial:
    """Forecast *run* after a share *at* of its epochs, with its schedule or only with its sizes."""
    done = round(at * len(run.sizes))
    training = TrainingSoFar(
        sizes=run.sizes[: done + 1],
        seconds=run.seconds[:done],
        epochs=len(run.sizes),
        costs={size: costs[size] for size in set(run.sizes)},
        schedule=run.sizes if planned else None,
        rising=not planned,
    )
    try:
        return ScheduleTrial(forecast_regimes(training), sum(run.seconds))
    except RefusedError:
        return ScheduleTrial(None, sum(run.seconds))


def _summary(trials: Mapping[str, list[list[ScheduleTrial]]]) -> list[str]:
    heads = ("what is known", *(f"after {at:.0%}" for at in PROGRESS), "in the interval", "refused")
    lines = [_row(way, points) for way, points in trials.items()]
    lines += _rules(trials["schedule, two recordings"])
    return ["Mean error of the total, and in brackets the largest:", "", *table(heads, lines)]


def _row(way: str, points: list[list[ScheduleTrial]]) -> list[str]:
    answered = [[a for a in each if a.forecast] for each in points]
    every = [a for each in answered for a in each]
    held = sum(a.is_held for a in every)
    return [
        way,
        *(_errors(a.error for a in each) for each in answered),
        f"{held} of {len(every)}",
        str(sum(map(len, points)) - len(every)),
    ]


def _rules(points: list[list[ScheduleTrial]]) -> Iterator[list[str]]:
    """Yield the rows of the published rule and of the naive one."""
    for name, total in (
        ("Shockwave's rule", "dirichlet_total"),
        ("last epoch repeated", "naive_total"),
    ):
        cells = [
            _errors(getattr(a.forecast, total) / a.truth - 1 for a in each if a.forecast)
            for each in points
        ]
        yield [name, *cells, "–", "–"]


def _errors(errors: Iterable[float]) -> str:
    off = np.abs([*errors])
    return f"{off.mean():.1%} ({off.max():.1%})" if len(off) else "–"


def _each(runs: list[Run], points: list[list[ScheduleTrial]]) -> list[str]:
    heads = ("model, schedule, repeat", "seconds", *(f"after {at:.0%}" for at in PROGRESS))
    lines = [
        [run.name, f"{sum(run.seconds):.1f}", *(_cell(each[at]) for each in points)]
        for at, run in enumerate(runs)
    ]
    return table(heads, lines)


def _cell(trial: ScheduleTrial) -> str:
    return percent(trial.error) if trial.forecast else "refused"
