"""What ``foretrace job speed`` says: speeds over workers and servers, and where to measure next."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from foretrace.job.report import JobReport, Table
from foretrace.job.scaling.forecast import (
    fit_absolute,
    fit_proportional,
    fit_relative,
    in_words,
    leave_each_out,
    next_to_measure,
    place_in_words,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from foretrace.job.report import Cell
    from foretrace.job.scaling.forecast import PointGrid
    from foretrace.job.scaling.points import Points
    from foretrace.job.scaling.simulated_points import Probe, ProbedSurface
    from foretrace.job.scaling.surface import Surface

    Floats = npt.NDArray[np.float64]

RULES = {
    "errors relative to the speed": fit_relative,
    "errors of the speed, Optimus' terms": fit_absolute,
    "speed per worker, no fit": fit_proportional,
}
UNSURE = 0.1
"""Mean half interval over the grid, relative, from which on the answer warns of it."""
IN_STEP = "workers wait for each other; a step has {}"
OWN_PACE = "workers do not wait for each other; a step of one has {}, and speeds add up"


def speed_report(
    surface: Surface,
    points: Points,
    grid: PointGrid,
    asked: Sequence[tuple[int, int]],
    replayed: ProbedSurface | None = None,
) -> JobReport:
    """Return the speeds of *surface*, fitted to *points*, at the places *asked* and over *grid*.

    Where the points are *replayed*, the replay stands beside the surface, and nothing is to be
    measured.
    """
    speeds = surface.speeds(*grid)
    is_known = np.isfinite(speeds[:, 2])
    best = int(np.argmax(np.where(is_known, speeds[:, 0], 0.0)))
    fastest = int(grid.workers[best]), int(grid.servers[best])
    unknown = [] if replayed else next_to_measure(points, surface.form, grid)
    answers = {place_in_words(*each, surface.form): surface.speed(*each) for each in asked}
    name = f"fastest: {place_in_words(*fastest, surface.form)}"
    count, off = len(points.speeds), surface.noise
    return JobReport(
        title=f"Speed from {count} points, which lie {off:.1%} off the surface",
        answers={**answers, name: surface.speed(*fastest)},
        tables=(
            _terms(surface),
            _judged(surface, points),
            _map("Speed, steps/s", surface, grid, speeds[:, 0]),
            _map("Half interval, %", surface, grid, 100 * _half(speeds)),
            _probes(surface, replayed.probes) if replayed else _unknown(surface, unknown),
        ),
        assumptions=[_form(surface)],
        warnings=[
            *_doubts(surface, points, grid, speeds, unknown),
            *(replayed.warnings if replayed else ()),
        ],
        doubts=replayed.doubts if replayed else (),
    )


def _half(speeds: Floats) -> Floats:
    """Return half the width of each interval, relative to its speed; infinite where it is open."""
    value, low, high = speeds.T
    is_known = np.isfinite(high)
    return np.where(
        is_known, (np.where(is_known, high, low) - low) / 2 / np.where(is_known, value, 1), np.inf
    )


def _terms(surface: Surface) -> Table:
    low, high = np.quantile(surface.drawn, [0.05, 0.95], axis=0)
    rows = zip(surface.form.terms, surface.terms.tolist(), low.tolist(), high.tolist(), strict=True)
    return Table("Terms of a step", ("times", "seconds", "from", "to"), [*rows])


def _judged(surface: Surface, points: Points) -> Table:
    """Return how far off rules are at each point if they do not know it."""
    rows: list[list[Cell]] = []
    for name, rule in RULES.items():
        errors = 100 * np.abs(leave_each_out(points, surface.form, rule))
        shown = (np.median(errors), errors.max()) if len(errors) else (np.inf, np.inf)
        rows.append([name, len(errors), *map(_finite, shown)])
    columns = ("fit", "points", "median |error|, %", "worst, %")
    return Table("Each point from all others", columns, rows)


def _map(title: str, surface: Surface, grid: PointGrid, values: Floats) -> Table:
    """Return *values* over *grid*: a row per number of workers, a column per number of servers."""
    workers, servers = np.unique(grid.workers), np.unique(grid.servers)
    cells = values.reshape(len(workers), len(servers)).tolist()
    served = [f"{int(each)} server{'s' if each > 1 else ''}" for each in servers]
    names = served if surface.form.has_servers else ["any"]
    rows = [[int(each), *map(_finite, row)] for each, row in zip(workers, cells, strict=True)]
    return Table(title, ("workers", *names), rows)


def _finite(value: float) -> float | None:
    """Return *value*; None where the points leave it open."""
    return float(value) if math.isfinite(value) else None


def _unknown(surface: Surface, places: Sequence[tuple[int, int]]) -> Table:
    names = ("workers", "servers") if surface.form.has_servers else ("workers",)
    return Table("Measure next", names, [each[: len(names)] for each in places])


def _probes(surface: Surface, probes: Sequence[Probe]) -> Table:
    """Return the replay beside the surface, where this was fitted to it and where not."""
    rows: list[list[Cell]] = [
        [
            each.workers,
            each.servers if surface.form.has_servers else None,
            each.replayed.value,
            each.replayed.low,
            each.replayed.high,
            each.surface,
            100 * (each.surface / each.replayed.value - 1),
            "yes" if each.is_fitted else "no",
        ]
        for each in probes
    ]
    columns = (
        "workers",
        "servers",
        "replay, steps/s",
        "from",
        "to",
        "surface",
        "error, %",
        "fitted",
    )
    return Table("Replay and surface", columns, rows)


def _form(surface: Surface) -> str:
    terms = "a time for each of " + ", ".join(surface.form.terms)
    return (IN_STEP if surface.form.in_step else OWN_PACE).format(terms)


def _doubts(
    surface: Surface,
    points: Points,
    grid: PointGrid,
    speeds: Floats,
    unknown: Sequence[tuple[int, int]],
) -> list[str]:
    """Say where the points carry little, or the grid goes beyond them."""
    doubts = []
    half, more = _half(speeds), f"; measure at {in_words(unknown, surface.form)}" if unknown else ""
    if open_points := int(np.isinf(half).sum()):
        doubts.append(f"{open_points} points of the grid are left open{more}")
    elif half.mean() > UNSURE:
        doubts.append(
            f"speeds over the grid are known within {half.mean():.0%} on average only{more}"
        )
    if grid.workers.max() > points.workers.max() or grid.servers.max() > points.servers.max():
        doubts.append("the grid goes beyond the points: whether the form holds there was not seen")
    return doubts
