"""Units: which parameters travel together, and where a step needs and finishes them."""

from __future__ import annotations

from typing import Any

import pytest

from foretrace.errors import TransformError
from foretrace.graph.literal import literal
from foretrace.transforms.distributed.common.gradients import Gradient, find_gradients
from foretrace.transforms.distributed.common.wrapping_units import EVERY_MODULE, REST, find_units
from tests.support.jobs.sharded import device_job, host_job

TASKS = ("forward", "forward", "forward", "backward", "backward", "backward")


def job(*modules: str | None) -> Any:
    """Return a job of 6 host tasks in *modules*: three forward, three backward."""
    return literal(
        [("task", "host", 0, 5, phase) for phase in TASKS], columns={"module": list(modules)}
    )


def of(module: str | None, row: int, size: int = 4) -> Gradient:
    """Return a gradient of *module* that is final after *row*."""
    return Gradient(None, size, row, 0, row, module)


def test_outermost_numbered_modules_are_units_and_the_rest_is_one() -> None:
    """blocks.1 is no part of blocks.10; the embedding goes with what no block has."""
    graph = job("embed", "blocks.1", "blocks.10.mlp", "blocks.10.mlp", "blocks.1", "embed")
    found = find_units(graph, [of("blocks.10.mlp", 3, 8), of("blocks.1", 4), of("embed", 5)])

    assert [(u.name, u.bytes, u.members, u.forward, u.backward, u.final) for u in found] == [
        (REST, 4, (2,), 0, 3, 5),
        ("blocks.1", 4, (1,), 1, 4, 4),
        ("blocks.10", 8, (0,), 2, 3, 3),
    ]


def test_without_numbers_the_top_modules_are_units() -> None:
    """fc.a and fc.b belong to fc."""
    graph = job("fc.a", "fc.b", "head", "head", "fc.b", "fc.a")

    assert [u.name for u in find_units(graph, [of("head", 3), of("fc.b", 4), of("fc.a", 5)])] == [
        "fc",
        "head",
    ]


def test_every_module_can_be_a_unit() -> None:
    """A module that nothing ran in belongs to the one around it."""
    graph = job("fc", "fc.a", "head", "head", "fc.a", "fc")
    found = find_units(graph, [of("head", 3), of("fc.a.b", 4), of("fc.c", 5)], EVERY_MODULE)

    assert [(u.name, u.members) for u in found] == [("fc", (2,)), ("fc.a", (1,)), ("head", (0,))]


def test_device_tasks_need_the_parameters() -> None:
    """Kernels of a unit, not its host tasks, wait for them."""
    graph = device_job()
    found = find_units(graph, find_gradients(graph))
    kinds = graph.tasks["kind"].astype(str)

    assert [u.step for u in found] == [0, 0, 1, 1]
    assert {kinds[u.needs_forward] for u in found} == {"kernel"}
    assert {kinds[u.forward] for u in found} == {"launch"}


def test_gradients_without_modules_are_refused() -> None:
    """The trace names modules, but not whose gradients are whose."""
    with pytest.raises(TransformError, match="does not tell which module a gradient belongs to"):
        find_units(job(*["fc"] * 6), [of(None, 3)])


def test_a_trace_without_modules_is_refused() -> None:
    """Nothing tells the parts of the model."""
    graph = literal([("task", "host", 0, 5, "forward")])

    with pytest.raises(TransformError, match="this trace names no modules"):
        find_units(graph, [of("fc", 0)])


def test_a_job_without_forward_is_refused() -> None:
    """Parameters that nothing uses are gathered for nobody."""
    graph = literal([("task", "host", 0, 5, "backward")], columns={"module": ["fc"]})

    with pytest.raises(TransformError, match="a step of this job has no forward pass"):
        find_units(graph, [of("fc", 0)])


def test_a_step_of_another_unit_keeps_its_own() -> None:
    """Two layers in each of two steps."""
    graph = host_job()

    assert [(u.step, u.name, u.bytes) for u in find_units(graph, find_gradients(graph))] == [
        (0, "layers.0", 500_000),
        (0, "layers.1", 1_000_000),
        (1, "layers.0", 500_000),
        (1, "layers.1", 1_000_000),
    ]
