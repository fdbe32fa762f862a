"""Which part of a job is worth making faster: the step against "this part x % faster".

Coz's question, for training jobs, answered by replaying instead of slowing the rest down: nothing
but times changes, so one layout of the graph serves all replays.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from foretrace.analysis.explain import CAUSES, task_causes
from foretrace.analysis.unchanged.baseline import replay_baseline
from foretrace.errors import TransformError
from foretrace.graph.model import DEVICE_KINDS
from foretrace.replaying.replay import replay
from foretrace.transforms.edit.columns import is_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from foretrace.analysis.unchanged.baseline import Baseline
    from foretrace.analysis.unchanged.measured_step import Measured
    from foretrace.graph.model import Graph
    from foretrace.graph.state import Doubt
    from foretrace.replaying.timeline import Timeline
    from foretrace.transforms.edit.columns import Mask

PERCENTS = (10.0, 25.0, 50.0, 75.0, 100.0)
"""How much less time the part takes; at 100 it is free."""
MOST_MODULES = 12
LEAST_SHARE = 0.002
"""A part with less work than this share of a step is left out."""
HOST_LAGS = ("thread", "fork", "join")


@dataclass(frozen=True)
class Curve:
    """The step, in ns, as one part of the job takes ever less time.

    ``of`` says what kind of part: "lane", "kernels", "phase" or "module"; ``work_ns`` is its work
    in a step.
    """

    of: str
    part: str
    work_ns: float
    step_ns: tuple[float, ...]


@dataclass(frozen=True)
class Sensitivity:
    """A curve per part, the one that can gain most first, at the same ``percents`` for all."""

    measured: Measured
    percents: tuple[float, ...]
    curves: tuple[Curve, ...]
    doubts: tuple[Doubt, ...] = ()


@dataclass(frozen=True)
class _Part:
    """A part of the job: its tasks, and which lags between tasks belong to it."""

    of: str
    name: str
    tasks: Mask
    lags: Mask | None = None


def sensitivity(graph: Graph, percents: Sequence[float] = PERCENTS) -> Sensitivity:
    """Replay *graph* with each of its parts faster by each of *percents*.

    Raises
    ------
    TransformError
        A percentage is not above 0 and at most 100, or the recorded step has no work.
    """
    return sensitivity_from(replay_baseline(graph), percents)


def sensitivity_from(baseline: Baseline, percents: Sequence[float] = PERCENTS) -> Sensitivity:
    """Replay the job of *baseline* with each of its parts faster by each of *percents*.

    Raises
    ------
    TransformError
        As `sensitivity` does.
    """
    wrong = [each for each in percents if not 0 < each <= 100]  # noqa: PLR2004  # percent
    if wrong or not percents:
        raise TransformError(f"percents: give numbers above 0 and up to 100, not {list(percents)}")
    baseline.require_work()
    graph, least = baseline.graph, LEAST_SHARE * baseline.timeline.step_ns
    curves = [
        _curve(baseline, part, percents) for part in _parts(graph) if _work(graph, part) >= least
    ]
    curves.sort(key=lambda curve: (min(curve.step_ns), curve.of, curve.part))
    return Sensitivity(baseline.measured, tuple(percents), tuple(curves), baseline.doubts)


def _curve(baseline: Baseline, part: _Part, percents: Sequence[float]) -> Curve:
    scale = baseline.measured.step_ns / baseline.timeline.step_ns
    steps = tuple(_faster(baseline.timeline, part, each).step_ns * scale for each in percents)
    return Curve(part.of, part.name, _work(baseline.graph, part), steps)


def _faster(before: Timeline, part: _Part, percent: float) -> Timeline:
    """Replay with *part* taking *percent* less time."""
    graph, left = before.graph, 1 - percent / 100
    work = graph.tasks["work_ns"].to_numpy()
    tasks = graph.tasks.assign(work_ns=_scaled(work, part.tasks, left))
    edges = graph.edges
    if part.lags is not None:
        edges = edges.assign(lag_ns=_scaled(edges["lag_ns"].to_numpy(), part.lags, left))
    return replay(replace(graph, tasks=tasks, edges=edges), like=before)


def _scaled(times: np.ndarray, where: Mask, factor: float) -> np.ndarray:
    return np.where(where, np.rint(times * factor), times).astype(np.int64)


def _work(graph: Graph, part: _Part) -> float:
    """Return the work of *part* in a step, in ns."""
    total = graph.tasks["work_ns"].to_numpy()[part.tasks].sum()
    if part.lags is not None:
        total += graph.edges["lag_ns"].to_numpy()[part.lags].sum()
    return float(total) / graph.steps


def _parts(graph: Graph) -> Iterator[_Part]:
    """Yield what a job can be split into: lanes, kernel classes, phases, modules."""
    tasks, edges = graph.tasks, graph.edges
    device = is_in(tasks["kind"], *DEVICE_KINDS)
    loads = is_in(tasks["kind"], "load")
    host_lags = is_in(edges["kind"], *HOST_LAGS)
    yield _Part("lane", "host", ~device & ~loads, host_lags)
    yield _Part("lane", "launch calls", is_in(tasks["kind"], "launch"))
    yield _Part("lane", "device", device, is_in(edges["kind"], "stream"))
    yield _Part("lane", "loader workers", loads)
    cause = task_causes(graph)
    for at, name in enumerate(CAUSES):
        yield _Part("kernels", name, device & (cause == at))
    src = edges["src"].to_numpy()
    for of, column, most in (("phase", "phase", None), ("module", "module", MOST_MODULES)):
        for name in _heaviest(graph, column, most):
            inside = is_in(tasks[column], name)
            yield _Part(of, f"{name}, device", inside & device)
            yield _Part(of, f"{name}, host", inside & ~device & ~loads, host_lags & inside[src])


def _heaviest(graph: Graph, column: str, most: int | None) -> list[str]:
    """Return the values of *column* with the most work, at most so many."""
    values = graph.tasks[column].array
    work = np.bincount(values.codes + 1, graph.tasks["work_ns"], len(values.categories) + 1)[1:]
    order = np.argsort(-work, kind="stable")[:most]
    return [str(values.categories[at]) for at in order if work[at] > 0]
