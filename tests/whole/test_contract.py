"""What every what-if keeps to, whatever the job: each of the registry, on the jobs of a table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foretrace.errors import TransformError
from foretrace.replaying.replay import replay
from foretrace.testing import check_description, check_transform
from foretrace.transforms.registry import TRANSFORMS
from tests.support.jobs.simple import cpu_job, gpu_job
from tests.support.whatif_cases import CASES, NEUTRAL

if TYPE_CHECKING:
    from collections.abc import Callable

    from foretrace.graph.model import Graph
    from tests.support.whatif_cases import Case

SLOWER = settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
SPEED_UPS = [case for case in CASES if case.name in {"faster_kernels", "faster_host"}]


def frames(graph: Graph) -> tuple[pd.DataFrame, ...]:
    """Return the tables of *graph*."""
    return graph.tasks, graph.edges, graph.lanes, graph.operators


def assert_same(one: Graph, other: Graph) -> None:
    """Assert that all tables are equal, dtypes and order included."""
    for left, right in zip(frames(one), frames(other), strict=True):
        pd.testing.assert_frame_equal(left, right)


def named(case: Case) -> str:
    """Return the what-if with its parameters, as the name of a test."""
    return f"{case.name}({', '.join(f'{k}={v}' for k, v in case.parameters.items())})"


def test_every_what_if_is_put_to_the_contract() -> None:
    """Each has a row of the table."""
    assert {case.name for case in CASES} == set(TRANSFORMS)


@pytest.mark.parametrize("case", CASES, ids=named)
@given(data=st.data())
@SLOWER
def test_every_what_if_keeps_the_contract(case: Case, data: st.DataObject) -> None:
    """The input is untouched, the output valid, labelled, explained, and the same twice."""
    graph = data.draw(case.graphs)

    changed = check_transform(TRANSFORMS[case.name], graph, **case.parameters)

    assert (replay(changed).step_ns > 0) == (replay(graph).step_ns > 0)


@pytest.mark.parametrize("case", NEUTRAL, ids=named)
@given(data=st.data())
@SLOWER
def test_neutral_parameters_change_nothing(case: Case, data: st.DataObject) -> None:
    """Asking for what is there gives it back."""
    graph = data.draw(case.graphs)

    assert_same(graph, TRANSFORMS[case.name](graph, **case.parameters))


@pytest.mark.parametrize("case", SPEED_UPS, ids=named)
@given(data=st.data())
@SLOWER
def test_a_speed_up_never_takes_longer(case: Case, data: st.DataObject) -> None:
    """Faster parts never make a step longer."""
    graph = data.draw(case.graphs)

    assert replay(TRANSFORMS[case.name](graph, **case.parameters)).step_ns <= replay(graph).step_ns


@pytest.mark.parametrize("name", sorted(TRANSFORMS))
def test_the_docstring_says_what_is_assumed(name: str) -> None:
    """Effect, Assumes, Unknown, Source and an example, in this order; keyword-only parameters."""
    check_description(TRANSFORMS[name])


def fp16_job() -> Graph:
    """Return the job of a device with products in 16 bits."""
    graph = gpu_job()
    names = graph.tasks["name"].cat.rename_categories(lambda n: n.replace("s1688gemm", "fp16_gemm"))
    return replace(graph, tasks=graph.tasks.assign(name=names))


@pytest.mark.parametrize(
    ("name", "parameters", "job"),
    [("faster_kernels", {"speedup": 2.0}, cpu_job), ("amp", {}, fp16_job)],
)
def test_selecting_nothing_is_an_error(
    name: str, parameters: dict[str, Any], job: Callable[[], Graph]
) -> None:
    """A what-if that finds nothing says what it looked for."""
    with pytest.raises(TransformError, match="nothing to change: no"):
        TRANSFORMS[name](job(), **parameters)
