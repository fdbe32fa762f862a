"""How fast a job runs on any number of workers and servers, from its speeds on a few.

In: speeds at some points. Out: a surface with an interval at every point, how far off it is at
points left out of the fit, and the points to measure next.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.optimize import least_squares, nnls

from foretrace.errors import RefusedError
from foretrace.job.scaling.experiment_design import guess_rows, next_points, tells_apart
from foretrace.job.scaling.points import Points
from foretrace.job.scaling.surface import SEED, Surface

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from foretrace.job.scaling.surface import Form

    Floats = npt.NDArray[np.float64]
    Rule = Callable[[Points, Form], Callable[[Floats, Floats], Floats]]

DRAWS = 1_000
MOST_ON_AXIS = 12
"""Numbers of workers, and of servers, in a grid; of larger ones only some are taken."""
BEYOND = 10.0
"""No point is taken to be so many times as fast as the fastest that was measured."""
MOST_LEFT_OUT = 100
PROBES = 3
"""Points to measure next that are named."""


class PointGrid(NamedTuple):
    """Points at which a speed may be wanted: every number of workers with every one of servers."""

    workers: Floats
    servers: Floats


def grid_up_to(workers: int, servers: int) -> PointGrid:
    """Return all points up to *workers* and *servers*; of large numbers some, evenly by ratio.

    Examples
    --------
    >>> [axis.tolist() for axis in grid_up_to(2, 2)]
    [[1.0, 1.0, 2.0, 2.0], [1.0, 2.0, 1.0, 2.0]]
    """
    across, along = np.meshgrid(_axis(workers), _axis(servers), indexing="ij")
    return PointGrid(across.ravel(), along.ravel())


def _axis(most: int) -> Floats:
    if most <= MOST_ON_AXIS:
        return np.arange(1.0, most + 1)
    return np.unique(np.geomspace(1, most, MOST_ON_AXIS).round())


def fit(points: Points, form: Form, noise: float | None = None) -> Surface:
    """Fit *form* to measured speeds by least squares of relative errors; no term is negative.

    The interval is that of a parametric bootstrap: of fits to speeds that scatter about the fitted
    ones as much as the measured ones do.

    Parameters
    ----------
    points
        Speeds that were measured.
    form
        The terms of a step.
    noise
        Standard deviation of a speed, relative to it; by default what the points show.

    Raises
    ------
    RefusedError
        The points do not tell the terms apart, or there is none left to show their noise.

    Examples
    --------
    >>> from foretrace.job.scaling.surface import Form
    >>> w, p = (np.array(each, float) for each in ((1, 3, 5, 1, 3, 5), (1, 1, 1, 4, 4, 4)))
    >>> form = Form(in_step=False)
    >>> fit(Points(w, p, form.speeds(np.array([3, 2, 0.5, 0.25]), w, p)), form).terms.round(6)
    array([3.  , 2.  , 0.5 , 0.25])
    """
    _check(points, form, least=len(form.terms) + (noise is None))
    terms = _relative_terms(points, form)
    fitted = form.speeds(terms, points.workers, points.servers)
    random = np.random.default_rng(SEED)
    shown, noises = _noises(fitted / points.speeds - 1, len(terms), noise, random)
    drawn = _redraw(_rows(form, points.workers, points.servers, fitted), noises, random)
    return Surface(form, terms, drawn, shown)


def _noises(
    scatter: Floats, terms: int, noise: float | None, random: np.random.Generator
) -> tuple[float, Floats]:
    """Return the noise that is known, or that *scatter* about so many fitted terms shows.

    Also return what it may be instead: the fewer points there are beyond the terms, the less sure.
    """
    if noise is not None:
        return noise, np.full(DRAWS, noise)
    freedom = len(scatter) - terms
    shown = float(np.sqrt((scatter**2).sum() / freedom))
    return shown, shown * np.sqrt(freedom / random.chisquare(freedom, DRAWS))


def _redraw(rows: Floats, noises: Floats, random: np.random.Generator) -> Floats:
    """Return the terms fitted to speeds with noise anew, one set for each of *noises*."""
    directions, triangle = np.linalg.qr(rows)  # as few rows as terms: the same fits, faster
    scatter = random.standard_normal((len(noises), len(rows))) @ directions
    wanted = directions.sum(axis=0) + noises[:, None] * scatter
    return np.array([_solve(triangle, each) for each in wanted])


def _check(points: Points, form: Form, least: int) -> None:
    """Refuse points that do not tell the terms of *form* apart, or of which there are too few."""
    rows = _rows(form, points.workers, points.servers, points.speeds)
    if tells_apart(rows) and len(rows) >= least:
        return
    ratios = np.unique(points.workers / points.servers)
    if form.has_servers and len(ratios) == 1:
        wrong = (
            f"all {len(rows)} points have one ratio of workers to servers, {ratios[0]:.4g}, which "
            f"does not tell the {len(form.terms)} terms of the speed apart"
        )
    elif tells_apart(rows):
        wrong = (
            f"{len(rows)} points for {len(form.terms)} terms do not show how much speeds scatter"
        )
    else:
        wrong = f"{len(rows)} points do not tell the {len(form.terms)} terms of the speed apart"
    places = next_to_measure(points, form, extent(points), max(least - len(rows), 2))
    raise RefusedError(f"{wrong}; measure at {in_words(places, form)}, too")


def extent(points: Points) -> PointGrid:
    """Return all numbers of workers and servers up to the largest measured, two at least."""
    return grid_up_to(
        max(int(points.workers.max()), 2),
        max(int(points.servers.max()), 2) if points.has_servers else 1,
    )


def in_words(places: Sequence[tuple[int, int]], form: Form) -> str:
    """Return *places*, each as workers and servers.

    Examples
    --------
    >>> from foretrace.job.scaling.surface import Form
    >>> in_words([(4, 1), (1, 2)], Form())
    '4 workers and 1 server, 1 worker and 2 servers'
    """
    return ", ".join(place_in_words(*each, form) for each in places)


def place_in_words(workers: int, servers: int, form: Form) -> str:
    """Return a point as workers and, where *form* has them, servers."""
    counted = f"{workers} worker{'s' * (workers != 1)}"
    served = f" and {servers} server{'s' * (servers != 1)}" if form.has_servers else ""
    return counted + served


def next_to_measure(
    points: Points | None,
    form: Form,
    grid: PointGrid,
    count: int = PROBES,
    *,
    is_noisy: bool = True,
) -> list[tuple[int, int]]:
    """Return workers and servers of the points of *grid* whose speeds tell most about all others.

    Without *points*, or where these do not tell the terms apart, the terms are taken to have equal
    shares in a step.
    """
    columns = form.columns(*grid)
    if points is None:
        measured, every = columns[:0], guess_rows(columns)
    else:
        measured, every = _information(points, form, grid)
    chosen = next_points(measured, every, count, is_noisy=is_noisy)
    return [(int(grid.workers[at]), int(grid.servers[at])) for at in chosen]


def _information(points: Points, form: Form, grid: PointGrid) -> tuple[Floats, Floats]:
    """Return the rows of what is measured and of *grid*, relative to the speeds there."""
    measured = _rows(form, points.workers, points.servers, points.speeds)
    if not tells_apart(measured):
        both = [
            np.concatenate(pair)
            for pair in zip((points.workers, points.servers), grid, strict=True)
        ]
        rows = guess_rows(form.columns(*both))
        return rows[: len(measured)], rows[len(measured) :]
    speeds = form.speeds(_relative_terms(points, form), *grid)
    return measured, _rows(form, *grid, np.minimum(speeds, BEYOND * points.speeds.max()))


def leave_each_out(points: Points, form: Form, rule: Rule) -> Floats:
    """Return how far off *rule* is at each point if it does not know that one.

    Errors are relative. Points without which the others do not tell the terms apart are passed
    over; of very many points, some are tried.
    """
    errors = []
    for at in range(0, len(points.speeds), -(-len(points.speeds) // MOST_LEFT_OUT)):
        kept = np.arange(len(points.speeds)) != at
        others = Points(points.workers[kept], points.servers[kept], points.speeds[kept])
        if tells_apart(_rows(form, others.workers, others.servers, others.speeds)):
            speeds = rule(others, form)(points.workers[[at]], points.servers[[at]])
            errors.append(float(speeds[0] / points.speeds[at] - 1))
    return np.array(errors)


def fit_relative(points: Points, form: Form) -> Callable[[Floats, Floats], Floats]:
    """Fit by relative errors, as `fit` does."""
    return partial(form.speeds, _relative_terms(points, form))


def fit_absolute(points: Points, form: Form) -> Callable[[Floats, Floats], Floats]:
    """Fit Optimus' terms by errors of the speeds themselves, as its code does.

    Fast points count most.
    """
    form = replace(form, is_published=True)
    solution = least_squares(
        lambda terms: form.speeds(terms, points.workers, points.servers) - points.speeds,
        np.ones(len(form.terms)),
        bounds=(0, np.inf),
        x_scale="jac",
    )
    return partial(form.speeds, solution.x)


def fit_proportional(points: Points, _form: Form) -> Callable[[Floats, Floats], Floats]:
    """Take each worker to add the same speed, whatever the servers: what a fit must do better."""
    each = float(np.median(points.speeds / points.workers))
    return lambda workers, _servers: each * workers


def _relative_terms(points: Points, form: Form) -> Floats:
    rows = _rows(form, points.workers, points.servers, points.speeds)
    return _solve(rows, np.ones(len(rows)))


def _rows(form: Form, workers: Floats, servers: Floats, speeds: Floats) -> Floats:
    """Return the columns of *form* in units of the step that a worker takes at each point."""
    return np.asarray(form.columns(workers, servers) * (speeds / form.steps(workers))[:, None])


def _solve(rows: Floats, wanted: Floats) -> Floats:
    """Return the non-negative terms that come closest to *wanted*."""
    lengths = np.linalg.norm(rows, axis=0)
    return np.asarray(nnls(rows / lengths, wanted)[0] / lengths)
