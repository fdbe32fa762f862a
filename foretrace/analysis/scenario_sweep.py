"""Many scenarios on one job: what they share is worked out once."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING, TypeAlias

from foretrace.analysis.prediction import Baseline, Prediction, baseline, predicted
from foretrace.errors import ForetraceError, TransformError
from foretrace.replaying.replay import replay
from foretrace.transforms.scenario import apply, as_scenario

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from foretrace.graph.model import Graph
    from foretrace.replaying.timeline import Timeline
    from foretrace.transforms.scenario import Asked, Scenario

Outcome = Prediction | ForetraceError
"""What became of a scenario: where it cannot be predicted, its error stands in its place."""

Made: TypeAlias = "tuple[Scenario, Graph]"
"""A scenario and the graph that it makes of the job."""

_CHUNK = 8
"""Scenarios a process fetches at once."""
_known: list[Baseline] = []
"""The job that this worker process predicts for."""


def predict_many(graph: Graph, scenarios: Iterable[Asked], *, jobs: int = 1) -> list[Outcome]:
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
    wanted = [as_scenario(asked) for asked in scenarios]
    if jobs == 1 or len(wanted) <= _CHUNK:
        return list(predict_each(baseline(graph), wanted))
    spawned = multiprocessing.get_context("spawn")  # a fork would inherit the threads of pyarrow
    with ProcessPoolExecutor(jobs, spawned, _start, (graph,)) as pool:
        chunks = [wanted[at : at + _CHUNK] for at in range(0, len(wanted), _CHUNK)]
        return [outcome for part in pool.map(_predict_chunk, chunks) for outcome in part]


def predict_each(known: Baseline, scenarios: Sequence[Scenario]) -> Iterator[Outcome]:
    """Yield the outcome of each scenario."""
    for scenario, after in zip(scenarios, replay_each(known, scenarios), strict=True):
        if isinstance(after, ForetraceError):
            yield after
            continue
        try:
            yield predicted(known, scenario, after)
        except ForetraceError as error:
            yield error


def replay_each(
    known: Baseline, scenarios: Iterable[Scenario], made: Sequence[Made] = ()
) -> Iterator[Timeline | ForetraceError]:
    """Yield the replay after each scenario.

    What a scenario begins with is not applied again where *made* or its neighbour has it.
    """
    recent: list[Made] = []
    for scenario in scenarios:
        begun, graph = max(
            (each for each in (((), known.graph), *made, *recent) if _begins(scenario, each[0])),
            key=lambda each: len(each[0]),
        )
        recent = []
        try:
            for count in range(len(begun), len(scenario)):
                graph = apply(graph, scenario[count : count + 1])
                recent.append((scenario[: count + 1], graph))
            yield replay(graph, like=known.timeline)
        except ForetraceError as error:
            yield error


def _begins(scenario: Scenario, begun: Scenario) -> bool:
    return scenario[: len(begun)] == begun


def _start(graph: Graph) -> None:
    _known[:] = [baseline(graph)]


def _predict_chunk(scenarios: Sequence[Scenario]) -> list[Outcome]:
    return list(predict_each(_known[0], scenarios))
