"""Many scenarios on one job: what they share is worked out once."""

from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING, TypeAlias

from foretrace.analysis.prediction import Prediction, predict_from
from foretrace.analysis.unchanged.baseline import Baseline, Experiment, replay_baseline
from foretrace.errors import ForetraceError, TransformError
from foretrace.replaying.replay import replay
from foretrace.tracer.child_process import end_with
from foretrace.transforms.scenario import apply, as_scenario

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from foretrace.graph.model import Graph
    from foretrace.transforms.scenario import Scenario, ScenarioLike

Outcome = Prediction | ForetraceError
"""What became of a scenario: where it cannot be predicted, its error stands in its place."""

Made: TypeAlias = "tuple[Scenario, Graph]"
"""A scenario and the graph that it makes of the job."""

_CHUNK = 8
"""Scenarios a process fetches at once."""
_baselines: list[Baseline] = []
"""The job that this worker process predicts for."""


def predict_many(
    graph: Graph, scenarios: Iterable[ScenarioLike], *, jobs: int = 1
) -> list[Outcome]:
    """Predict every scenario as `predict` does, on *jobs* processes.

    Outcomes are in the order of *scenarios*, whatever *jobs*. With more than one process, a
    script must guard its entry by ``if __name__ == "__main__"``, as for every spawned process.

    Raises
    ------
    TransformError
        *jobs* is below 1, or the recorded step has no work.
    """
    if jobs < 1:
        raise TransformError(f"jobs={jobs} is out of range; give at least 1")
    if isinstance(scenarios, str):
        raise TransformError(f"{scenarios!r} is one scenario: give a list of them")
    wanted = [as_scenario(asked) for asked in scenarios]
    if jobs == 1 or len(wanted) <= _CHUNK:
        return list(predict_each(replay_baseline(graph), wanted))
    spawned = multiprocessing.get_context("spawn")  # a fork would inherit the threads of pyarrow
    with ProcessPoolExecutor(jobs, spawned, _start, (graph, os.getpid())) as pool:
        chunks = [wanted[at : at + _CHUNK] for at in range(0, len(wanted), _CHUNK)]
        return [outcome for part in pool.map(_predict_chunk, chunks) for outcome in part]


def predict_each(baseline: Baseline, scenarios: Iterable[Scenario]) -> Iterator[Outcome]:
    """Yield the outcome of each scenario.

    Raises
    ------
    TransformError
        The recorded step has no work.
    """
    baseline.require_work()
    for experiment in replay_each(baseline, scenarios):
        if isinstance(experiment, ForetraceError):
            yield experiment
            continue
        try:
            yield predict_from(experiment)
        except ForetraceError as error:
            yield error


def replay_each(
    baseline: Baseline, scenarios: Iterable[Scenario], made: Sequence[Made] = ()
) -> Iterator[Experiment | ForetraceError]:
    """Yield the replay after each scenario, or why there is none.

    What a scenario begins with is not applied again where *made* or its neighbour has it.
    """
    recent: list[Made] = []
    for scenario in scenarios:
        begun, graph = max(
            (each for each in (((), baseline.graph), *made, *recent) if _begins(scenario, each[0])),
            key=lambda each: len(each[0]),
        )
        recent = []
        try:
            for count in range(len(begun), len(scenario)):
                graph = apply(graph, scenario[count : count + 1])
                recent.append((scenario[: count + 1], graph))
            yield Experiment(baseline, scenario, replay(graph, like=baseline.timeline))
        except ForetraceError as error:
            yield error


def _begins(scenario: Scenario, begun: Scenario) -> bool:
    return scenario[: len(begun)] == begun


def _start(graph: Graph, parent: int) -> None:
    end_with(parent)
    _baselines[:] = [replay_baseline(graph)]


def _predict_chunk(scenarios: Sequence[Scenario]) -> list[Outcome]:
    return list(predict_each(_baselines[0], scenarios))
