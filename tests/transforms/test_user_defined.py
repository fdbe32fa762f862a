"""What-ifs of the user's own: whatever they return or raise is one sentence that names them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

from foretrace.errors import TransformError
from foretrace.transforms.edit.provenance import warnings
from foretrace.transforms.scenario import WhatIf, apply
from foretrace.transforms.user_defined import run_user_defined
from tests.support.jobs.simple import gpu_job

if TYPE_CHECKING:
    from collections.abc import Callable

    from foretrace.graph.model import Graph

NAME = "mine.py:change"


class Speechless(Exception):  # noqa: N818 - it is about its text
    """An error that fails to say what it is."""

    def __str__(self) -> str:
        """Fail."""
        raise ValueError("no words")


def tasks(**columns: Any) -> Callable[[Graph], Any]:
    """Return a what-if that sets columns of the tasks."""
    return lambda graph: replace(graph, tasks=graph.tasks.assign(**columns))


def field(**values: Any) -> Callable[[Graph], Any]:
    """Return a what-if that sets fields of the graph."""
    return lambda graph: replace(graph, **values)


def without(column: str) -> Callable[[Graph], Any]:
    """Return a what-if that drops a column."""
    return lambda graph: replace(graph, tasks=graph.tasks.drop(columns=column))


def fewer(graph: Graph) -> Graph:
    """Keep the first tasks and all edges."""
    return replace(graph, tasks=graph.tasks.head(3))


def gaps(graph: Graph) -> Graph:
    """Drop the edges of a step, and leave the numbers of the others."""
    return replace(graph, edges=graph.edges.iloc[5:])


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda graph: None, "returned NoneType: return the changed graph"),  # noqa: ARG005
        (lambda graph: graph.tasks, "returned DataFrame: return the changed graph"),
        (field(tasks=None), "tasks is NoneType, expected DataFrame"),
        (field(notes=None), "notes is NoneType, expected tuple"),
        (field(notes=["assumed"]), "notes is list, expected tuple"),
        (field(notes=(3,)), "notes holds something that is no text"),
        (field(steps="2"), "steps is str, expected Real"),
        (field(steps=0), "a graph has at least 1 step"),
        (field(measured_step_ns=float("nan")), "measured_step_ns is nan"),
        (field(state=None), "state is NoneType, expected JobState"),
        (field(meta={}), "meta is dict, expected TraceMeta"),
        (tasks(work_ns=2**62), "work_ns adds up to more than 115 days"),
        (tasks(work_ns=-1), "work_ns is -1, out of range"),
        (tasks(work_ns=0.5), "column 'work_ns' is float64, expected int64"),
        (tasks(step=np.int32(9)), "step is not from 0 to 1 in every task"),
        (tasks(kind=pd.Categorical(["thought"] * 38)), "kind 'thought' is unknown"),
        (without("phase"), "tasks lacks the column 'phase'"),
        (fewer, "src is 3, out of range"),
        (gaps, "the rows of edges are not numbered 0, 1, 2"),
        (lambda graph: field(tasks=pd.concat([graph.tasks] * 2, axis=1))(graph), "AttributeError"),
    ],
)
def test_a_malformed_graph_is_one_sentence(function: Callable[..., Any], said: str) -> None:
    """It begins with the function's name; nothing of ours is blamed."""
    with pytest.raises(TransformError) as refused:
        apply(gpu_job(), [WhatIf(NAME, function)])

    text = str(refused.value)
    assert text.startswith(f"{NAME} returned ")
    assert said in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (Speechless(), f"{NAME} failed: Speechless: (its text cannot be shown)"),
        (RuntimeError("one\ntwo"), f"{NAME} failed: RuntimeError: one"),
        (SystemExit(3), f"{NAME} ended the program: sys.exit(3)"),
        (TransformError("mine"), "mine"),
    ],
)
def test_what_it_raises_is_one_sentence(error: BaseException, said: str) -> None:
    """Also where the error itself cannot say what it is."""

    def failing(_graph: Graph) -> Graph:
        raise error

    with pytest.raises(TransformError) as refused:
        run_user_defined(NAME, failing, gpu_job(), {})

    assert str(refused.value).startswith(said)


def test_it_may_edit_every_table_in_place() -> None:
    """The job that others still predict from stays as it is."""

    def careless(graph: Graph) -> Graph:
        graph.tasks["work_ns"] *= 2
        graph.lanes["id"] += 1
        return graph

    graph = gpu_job()
    changed = run_user_defined(NAME, careless, graph, {})

    assert changed.tasks["work_ns"].sum() == 2 * graph.tasks["work_ns"].sum()
    assert changed.lanes["id"].tolist() != graph.lanes["id"].tolist()
    assert graph.lanes["id"].tolist() == gpu_job().lanes["id"].tolist()


def test_one_that_changes_nothing_is_said() -> None:
    """A copy that comes back as it went in is the job itself."""
    changed = apply(gpu_job(), [WhatIf(NAME, lambda graph: graph)])

    assert warnings(changed) == (f"{NAME} changes nothing in this job",)
