"""Speeds that the replay predicts on a few numbers of workers and servers, for a surface over all.

In: a graph, and what joins its workers. Out: predicted speeds at the points that tell most, a
surface fitted to most of them, and how far it is off at the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
from scipy.special import ndtri

from foretrace.analysis.unchanged.baseline import replay_baseline
from foretrace.errors import ForetraceError, RefusedError
from foretrace.job.answer import Answer
from foretrace.job.scaled_out import predict_spread, step_of
from foretrace.job.scaling.forecast import PointGrid, fit, next_to_measure
from foretrace.job.scaling.points import Points

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foretrace.analysis.prediction import Prediction
    from foretrace.analysis.unchanged.baseline import Baseline
    from foretrace.graph.model import Graph
    from foretrace.graph.state import Doubt
    from foretrace.job.scaled_out import Spread
    from foretrace.job.scaling.surface import Form, Surface

SPARE = 3
"""Points beyond the number of terms that a surface is fitted to."""
T = TypeVar("T")
CHECKS = 4
"""Points at which it is compared with the replay, and which it does not know."""


class Probe(NamedTuple):
    """The replay at one point beside the surface there, in steps per second of all workers."""

    workers: int
    servers: int
    replayed: Answer
    surface: float
    is_fitted: bool


class ProbedSurface(NamedTuple):
    """A surface, the points that it was fitted to, and those and others beside the replay.

    ``warnings`` and ``doubts`` are those that every prediction has.
    """

    surface: Surface
    points: Points
    probes: list[Probe]
    warnings: list[str]
    doubts: list[Doubt]


def probe_surface(graph: Graph, form: Form, grid: PointGrid, like: Spread) -> ProbedSurface:
    """Replay *graph* at the most telling points of *grid*, spread as *like*, and fit *form*.

    The interval of the surface holds that of the replay. Points to which the job cannot be spread,
    such as workers that do not fill their machines, are passed over.

    Raises
    ------
    ForetraceError
        The job cannot be spread so, too few points tell the terms apart, or the recording is too
        doubtful to tell a speed.
    """
    count = len(form.terms) + SPARE
    replayed = _predict_points(replay_baseline(graph), form, grid, like, count + CHECKS)
    warnings = _of_all([each.warnings for each in replayed.values()])
    doubts = _of_all([each.doubts for each in replayed.values()])
    steps = [
        _require_positive(step_of(each), [*map(str, doubts), *warnings])
        for each in replayed.values()
    ]
    answers = [
        _speed(step, 1 if form.in_step else workers)
        for (workers, _), step in zip(replayed, steps, strict=True)
    ]
    workers, servers = np.array([*replayed], np.float64).T
    speeds = np.array([answer.value for answer in answers])
    points = Points(workers[:count], servers[:count], speeds[:count], form.has_servers)
    surface = fit(points, form).blur(_doubt(answers))
    at = surface.speeds(workers, servers)[:, 0].tolist()
    probes = [
        Probe(*place, answer, value, row < count)
        for row, (place, answer, value) in enumerate(zip(replayed, answers, at, strict=True))
    ]
    return ProbedSurface(surface, points, probes, warnings, doubts)


def _predict_points(
    baseline: Baseline, form: Form, grid: PointGrid, like: Spread, count: int
) -> dict[tuple[int, int], Prediction]:
    """Predict the job at the *count* most telling points of *grid* that it can be spread to."""
    predictions: dict[tuple[int, int], Prediction] = {}
    while True:
        places = next_to_measure(None, form, grid, count, is_noisy=False)
        new = [place for place in places if place not in predictions]
        failed: dict[tuple[int, int], ForetraceError] = {}
        spreads = [like._replace(workers=w, servers=p) for w, p in new]
        for place, outcome in zip(new, predict_spread(baseline, spreads), strict=True):
            if isinstance(outcome, ForetraceError):
                failed[place] = outcome
            else:
                predictions[place] = outcome
        if not failed:
            return {place: predictions[place] for place in places}
        stays = [place not in failed for place in zip(*grid, strict=True)]
        grid = PointGrid(*(axis[stays] for axis in grid))
        if sum(stays) <= len(form.terms):
            texts = [str(error) for error in failed.values()]
            raise max(failed.values(), key=lambda error: texts.count(str(error)))


def _of_all(said: Sequence[tuple[T, ...]]) -> list[T]:
    """Return what is *said* of every prediction."""
    return [each for each in said[0] if all(each in other for other in said)]


def _require_positive(step: Answer, reasons: list[str]) -> Answer:
    """Return *step*; refuse one that may be as short as you like, and say why it may."""
    if step.low <= 0:
        why = f": {reasons[0]}" if reasons else ""
        raise RefusedError(f"this recording leaves open how short a step may be{why}")
    return step


def _speed(step: Answer, steps: int) -> Answer:
    """Return the steps per second of a job that takes *steps* steps in the time of one."""
    ends = (steps / step.value, steps / step.high, steps / step.low)
    return Answer(*ends, "steps/s", step.level, step.status)


def _doubt(answers: Sequence[Answer]) -> float:
    """Return the standard deviation of what the replay may be off, relative, as all points show."""
    widths = [(answer.high - answer.low) / 2 / answer.value for answer in answers]
    return float(np.mean(widths) / ndtri((1 + answers[0].level) / 2))
