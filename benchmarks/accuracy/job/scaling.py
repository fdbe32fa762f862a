"""What surfaces of speed are worth, by simulation: section of docs/accuracy-job.md.

In: surfaces with known terms, and speeds on them with noise. Out: how far off fits are over a grid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foretrace.job.scaling.forecast import (
    PointGrid,
    fit,
    fit_absolute,
    fit_relative,
    grid_up_to,
    next_to_measure,
)
from foretrace.job.scaling.points import Points
from foretrace.job.scaling.surface import Form

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

MOST, POINTS, NOISE, SURFACES, SEED = 10, 8, 0.02, 100, 7
GOAL = 0.03
HEAD = (
    "## Speed over workers and servers",
    "",
    f"Simulated: {SURFACES} surfaces of Optimus' form, its terms with random shares of a step.",
    f"{POINTS} speeds with {NOISE:.0%} noise tell those of {MOST} x {MOST} workers and servers.",
    "Points are random ones off the diagonal, or chosen beforehand, as `Measure next` does.",
    "Points on the diagonal are refused.",
    "Errors are means over the grid; `held` is the share of it inside intervals of level 90%.",
    "The last two columns are of a fit to the speeds themselves, as the code of Optimus makes it.",
    "",
    "| workers | points | median | 90th perc. | worst | within 3% | held | median | worst |",
    "|---|---|--:|--:|--:|--:|--:|--:|--:|",
)
FORMS = {"in step": Form(), "at their own pace": Form(in_step=False)}


class SurfaceTrial(NamedTuple):
    """A fit over the grid: mean error of both rules, and the share of speeds in their interval."""

    relative: float
    absolute: float
    held: float


def tries(form: Form, *, chosen: bool) -> Iterator[SurfaceTrial]:
    """Yield the fits to surfaces whose terms have random shares of a step.

    Speeds are measured at random points that have not as many workers as servers, or at points
    *chosen* beforehand.
    """
    random = np.random.default_rng(SEED)
    grid = grid_up_to(MOST, MOST)
    columns = form.columns(*grid)
    off = np.flatnonzero(grid.workers != grid.servers)
    best = np.array(next_to_measure(None, form, grid, POINTS, is_noisy=False), np.float64).T
    for _ in range(SURFACES):
        terms = random.dirichlet(np.ones(len(form.terms))) / columns.mean(axis=0)
        at = random.choice(off, POINTS, replace=False)
        where = PointGrid(*best) if chosen else PointGrid(*(axis[at] for axis in grid))
        noise = random.normal(1, NOISE, POINTS)
        yield _try_surface(form, terms, grid, Points(*where, form.speeds(terms, *where) * noise))


def _try_surface(form: Form, terms: Floats, grid: PointGrid, points: Points) -> SurfaceTrial:
    real = form.speeds(terms, *grid)
    _, low, high = fit(points, form).speeds(*grid).T
    own, other = (
        float(np.abs(rule(points, form)(*grid) / real - 1).mean())
        for rule in (fit_relative, fit_absolute)
    )
    return SurfaceTrial(own, other, float(((low <= real) & (real <= high)).mean()))


def speed_section(_recorded: Path) -> list[str]:
    """Return the section on ``foretrace job speed``."""
    lines = list(HEAD)
    for name, form in FORMS.items():
        for kind in ("random", "chosen"):
            trials = np.array(list(tries(form, chosen=kind == "chosen")))
            own, other, held = trials.T
            cells = [np.median(own), np.quantile(own, 0.9), own.max(), (own <= GOAL).mean()]
            cells += [held.mean(), np.median(other), other.max()]
            lines.append(f"| {name} | {kind} | {' | '.join(f'{cell:.1%}' for cell in cells)} |")
    return lines
