"""Many scenarios: the same outcomes as one by one, errors in their places, any number of jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foretrace.analysis.candidates import list_candidates
from foretrace.analysis.prediction import predict
from foretrace.analysis.scenario_sweep import predict_many
from foretrace.errors import ForetraceError, TransformError
from foretrace.replaying.replay import replay
from foretrace.transforms.scenario import parse_scenario
from tests.support.jobs.simple import cpu_job, gpu_job, jobs
from tests.support.recordings.events import scaled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foretrace.graph.model import Graph
    from foretrace.transforms.scenario import Scenario

FASTER = parse_scenario(["faster_host(speedup=2)"])
NOTHING = parse_scenario(["faster_kernels(pattern='no such kernel', speedup=2)"])
TOGETHER = [
    FASTER,
    parse_scenario(["faster_host(speedup=2)", "remove_sync"]),
    parse_scenario(["faster_host(speedup=2)", "batch_size(n=64)"]),
    NOTHING,
    parse_scenario(["amp", "fused_optimizer"]),
]


def one_by_one(graph: Graph, scenarios: Sequence[Scenario]) -> list[object]:
    """Return what `predict` says of each, or the text of its error."""
    outcomes: list[object] = []
    for scenario in scenarios:
        try:
            outcomes.append(predict(graph, scenario))
        except ForetraceError as error:
            outcomes.append(str(error))
    return outcomes


def texts(outcomes: list[object]) -> list[object]:
    """Return the outcomes with errors as their text: two errors are never equal."""
    return [str(each) if isinstance(each, ForetraceError) else each for each in outcomes]


def test_outcomes_are_those_of_single_predictions() -> None:
    """Sharing the baseline and a common beginning changes no number and no note."""
    graph = gpu_job()

    assert texts([*predict_many(graph, TOGETHER)]) == one_by_one(graph, TOGETHER)


def test_every_candidate_is_predicted_alike() -> None:
    """All what-ifs of the table, on a job with a device and on one without."""
    for graph in (gpu_job(), cpu_job()):
        asked = [(candidate.what_if(graph),) for candidate in list_candidates()]

        assert texts([*predict_many(graph, asked)]) == one_by_one(graph, asked)


def test_a_failing_scenario_stands_in_its_place() -> None:
    """Its error is the outcome, and the others are not disturbed."""
    first, failed, last = predict_many(gpu_job(), [FASTER, NOTHING, FASTER])

    assert first == last
    assert isinstance(failed, TransformError)
    assert "no such kernel" in str(failed)


def test_several_processes_agree_with_one() -> None:
    """Two workers return the same outcomes in the same order."""
    graph = gpu_job()
    asked = [
        parse_scenario([f"faster_host(speedup={1 + number / 10})"]) for number in range(11)
    ] + [NOTHING]

    assert texts([*predict_many(graph, asked, jobs=2)]) == texts([*predict_many(graph, asked)])


def test_no_job_is_no_number_of_jobs() -> None:
    """Jobs below one are refused."""
    with pytest.raises(TransformError, match="jobs=0 is out of range"):
        predict_many(gpu_job(), [FASTER], jobs=0)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(jobs(), st.floats(0, 3), st.integers(0, 2_000))
def test_a_replay_that_reuses_a_layout_is_the_same(graph: Graph, factor: float, lag: int) -> None:
    """Times may differ in any way: what is taken over from the unchanged job is no time."""
    before = replay(graph)
    changed = scaled(before.graph, factor, "kernel", "host", "launch")
    edges = changed.edges.assign(lag_ns=changed.edges["lag_ns"] + lag)
    changed = replace(changed, edges=edges)
    anew, again = replay(changed), replay(changed, like=before)

    assert again.step_ns == anew.step_ns
    assert np.array_equal(again.start_ns, anew.start_ns)
    assert again.breakdown() == anew.breakdown()
    assert again.lowered.layout is before.lowered.layout


def test_another_structure_is_laid_out_anew() -> None:
    """A stream that is waited for, one edge, one queue length: each makes another program."""
    graph = gpu_job()
    before = replay(graph)
    waits = graph.tasks.assign(wait=graph.tasks["wait"].cat.set_categories(["none", "device"]))
    shifted = graph.edges.assign(shift=graph.edges["shift"] + (graph.edges["kind"] == "launch"))
    others = (
        replace(graph, tasks=waits.fillna({"wait": "device"})),
        replace(graph, edges=shifted.astype({"shift": np.int32})),
        replace(graph, platform=replace(graph.platform, queue_depth=1)),
    )

    for other in others:
        again = replay(other, like=before)
        assert again.lowered.layout is not before.lowered.layout
        assert again.step_ns == replay(other).step_ns
