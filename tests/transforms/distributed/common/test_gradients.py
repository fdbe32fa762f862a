"""Gradients: sizes, order and moments, from whatever a trace tells."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest

from foretrace.errors import TransformError
from foretrace.graph.literal import literal
from foretrace.transforms.batching.gradient_accumulation import gradient_accumulation
from foretrace.transforms.costs.operators import ACCUMULATE
from foretrace.transforms.distributed.common.gradient_sizes import UNKNOWN_PIECES
from foretrace.transforms.distributed.common.gradients import (
    find_gradients,
    total_bytes,
)
from tests.support.jobs import simple
from tests.support.jobs.gradients import accumulating_job, cpu_job, gpu_job

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

PARAMETERS = [
    ["head.weight", [1000, 250], 4],
    ["body.bias", [250], 4],
    ["body.weight", [500, 500], 4],
]


def with_model(graph: Graph, parameters: list[list[object]]) -> Graph:
    """Return *graph* as recorded with a model of these parameters."""
    extra = {**graph.meta.extra, "parameters": parameters}
    return replace(graph, meta=replace(graph.meta, extra=extra))


def test_each_gradient_is_final_after_the_task_that_accumulates_it() -> None:
    """A bias and two weights, in both steps, in the order of backward."""
    found = find_gradients(cpu_job(steps=2))

    assert [(g.step, g.bytes, g.row, g.host) for g in found] == [
        (0, 1_000, 2, 2),
        (0, 1_000_000, 4, 4),
        (0, 1_000_000, 6, 6),
        (1, 1_000, 10, 10),
        (1, 1_000_000, 12, 12),
        (1, 1_000_000, 14, 14),
    ]
    assert found[1].shape == (1000, 250)
    assert {g.source for g in found} == {"shapes"}
    assert total_bytes(found) == 2_001_000


def test_half_precision_gradients_take_half_the_bytes() -> None:
    """The operator's type tells."""
    graph = cpu_job(shapes=["[[10,10]]"])
    graph = replace(
        graph, operators=graph.operators.assign(dtypes=pd.Categorical(['["c10::Half"]'] * 4))
    )

    assert [(g.bytes, g.width) for g in find_gradients(graph)] == [(200, 2)]


def test_on_a_device_it_is_final_after_the_last_kernel_launched_by_then() -> None:
    """Kernels 5 and 8 write the gradients whose hooks run after tasks 6 and 9."""
    found = find_gradients(gpu_job())

    assert [(g.row, g.host) for g in found] == [(5, 6), (8, 9)]


def test_a_kernel_that_another_thread_launched_does_not_count() -> None:
    """A loader prepares batches on a stream of its own at any time."""
    graph = literal(
        [("fwd", "launch", 0, 5, "forward"), ("accumulate", "host", 0, 5, "backward"),
         ("load", "launch", 1, 5, "load"), ("gemm", "kernel", 2, 9, "backward"),
         ("resize", "kernel", 3, 9, "load")],
        [(0, 3, "launch"), (2, 4, "launch")],
        columns={"operator": [-1, 0, -1, -1, -1], "start_ns": [0, 9, 8, 1, 9]},
        operators={"name": [ACCUMULATE], "parent": [-1], "shapes": ["[[7]]"]},
    )  # fmt: skip

    assert [g.row for g in find_gradients(graph)] == [3]


def test_of_several_passes_the_last_one_counts() -> None:
    """Accumulated gradients are final once per step, recorded or predicted."""
    recorded = find_gradients(accumulating_job(passes=2))
    predicted = find_gradients(gradient_accumulation(cpu_job(), k=3))

    assert [g.row for g in recorded] == [7, 9]
    assert len(predicted) == 3
    assert min(g.row for g in predicted) > len(cpu_job().tasks)


def test_passes_over_different_parameters_are_both_kept() -> None:
    """Two networks in turn are no accumulation."""
    graph = accumulating_job(passes=2)
    shapes = graph.operators["shapes"].astype(object)
    shapes[2] = "[[9,9]]"
    graph = replace(graph, operators=graph.operators.assign(shapes=pd.Categorical(shapes)))

    assert [g.row for g in find_gradients(graph)] == [2, 4, 7, 9]


def test_names_come_from_the_model_where_shapes_agree() -> None:
    """A parameter of the task's own module comes first."""
    graph = with_model(cpu_job(shapes=["[[500,500]]", "[[250]]"]), PARAMETERS)
    modules = pd.Categorical([None, None, "body", None, "elsewhere", None])
    graph = replace(graph, tasks=graph.tasks.assign(module=modules))

    assert [(g.name, g.module) for g in find_gradients(graph)] == [
        ("body.weight", "body"),
        ("body.bias", "body"),
    ]


def test_a_shape_that_the_model_has_not_stays_without_a_name() -> None:
    """The task's module is all there is."""
    graph = with_model(cpu_job(shapes=["[[3,3]]"]), PARAMETERS)
    graph = replace(graph, tasks=graph.tasks.assign(module=pd.Categorical(["a"] * 4)))

    assert [(g.name, g.module) for g in find_gradients(graph)] == [(None, "a")]


def test_without_shapes_the_model_tells_sizes_in_reverse_order() -> None:
    """Backward finishes last what the model defines first."""
    graph = with_model(cpu_job(shapes=[None] * 3), PARAMETERS)
    found = find_gradients(graph)

    assert [(g.name, g.row) for g in found] == [
        ("body.weight", 2),
        ("body.bias", 4),
        ("head.weight", 6),
    ]
    assert {g.source for g in found} == {"model"}


def test_sizes_can_be_given_where_the_trace_tells_none() -> None:
    """In the model's order; on the moments that are seen."""
    found = find_gradients(cpu_job(shapes=[None] * 3), parameters=[1, 2, 4])

    assert [(g.bytes, g.row, g.source) for g in found] == [
        (4_000_000, 2, "given"),
        (2_000_000, 4, "given"),
        (1_000_000, 6, "given"),
    ]


def test_a_sum_is_spread_over_the_gradients_that_are_seen() -> None:
    """Three of them, even."""
    found = find_gradients(cpu_job(shapes=[None] * 3), gradient_mb=6)

    assert [g.bytes for g in found] == [2_000_000] * 3


def test_where_nothing_is_seen_sizes_are_spread_over_backward() -> None:
    """The last gradient is ready when backward ends."""
    given = find_gradients(simple.gpu_job(steps=1), parameters=[1, 1, 1])
    summed = find_gradients(simple.cpu_job(steps=1), gradient_mb=64)

    assert [g.row for g in given] == [8, 10, 12]
    assert [g.host for g in given] == [-1, -1, -1]
    assert len(summed) == UNKNOWN_PIECES
    assert {(g.row, g.host) for g in summed} == {(3, 3)}


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "does not tell how large the gradients are"),
        ({"parameters": [1], "gradient_mb": 1}, "not both"),
        ({"parameters": []}, "is no list"),
        ({"parameters": 5}, "is no list"),
        ({"parameters": [1, -1]}, "parameters=-1 is out of range"),
        ({"gradient_mb": 0}, "gradient_mb=0 is out of range"),
        ({"gradient_mb": 1e300}, r"gradients of 1e\+300 MB: give at most 1,000,000,000 MB in all"),
    ],
)
def test_what_cannot_be_known_is_asked_for(given: dict[str, object], text: str) -> None:
    """One sentence says how to give it."""
    with pytest.raises(TransformError, match=text):
        find_gradients(simple.gpu_job(), **given)  # type: ignore[arg-type]


def test_a_job_without_backward_has_no_gradients() -> None:
    """Inference, say."""
    graph = literal([("fwd", "host", 0, 5, "forward")])

    with pytest.raises(TransformError, match="no backward pass"):
        find_gradients(graph, gradient_mb=1)


def test_a_trace_without_launches_cannot_place_them() -> None:
    """Device tasks alone do not tell what a host task waited for."""
    graph = gpu_job()
    launches = (graph.edges["kind"] == "launch").to_numpy()
    graph = replace(graph, edges=graph.edges[~launches].reset_index(drop=True))

    with pytest.raises(TransformError, match="no launch"):
        find_gradients(graph)


def test_sizes_of_another_number_of_gradients_are_spread() -> None:
    """A model with a parameter more than what backward reached."""
    found = find_gradients(with_model(cpu_job(shapes=[None] * 2), PARAMETERS))

    assert [g.name for g in found] == ["body.weight", "body.bias", "head.weight"]
    assert np.all(np.diff([g.row for g in found]) >= 0)
