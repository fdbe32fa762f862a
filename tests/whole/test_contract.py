"""What every what-if keeps to, whatever the job: found from the registry, run over random jobs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from hypothesis import HealthCheck, assume, given, settings

from foretrace.errors import TransformError
from foretrace.replaying.replay import replay
from foretrace.testing import check_description, check_transform
from foretrace.transforms.edit.select import has_device
from foretrace.transforms.registry import TRANSFORMS
from tests.support.jobs.simple import cpu_job, gpu_job, jobs

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

CHANGES: dict[str, dict[str, Any]] = {
    "faster_kernels": {"pattern": ".*", "speedup": 2.0},
    "faster_host": {"speedup": 2.0},
    "amp": {},
    "fused_optimizer": {},
    "dataloader": {"workers": 2},
    "remove_sync": {},
    "batch_size": {"n": 64},
    "gradient_accumulation": {"k": 3},
    "device": {"name": "H100"},
    "vdnn": {},
    "gist": {"lossy_bits": 8},
    "replace_kernel": {"pattern": "gemm", "duration_us": 3.0},
    "activation_checkpoint": {},
    "cuda_graphs": {},
    "compile": {},
    "ddp": {"workers": 4, "network": "10Gbps", "gradient_mb": 50},
}
NEUTRAL: dict[str, dict[str, Any]] = {
    "faster_kernels": {"pattern": ".*", "speedup": 1.0},
    "faster_host": {"speedup": 1.0},
    "dataloader": {"workers": 0},
    "batch_size": {"n": 32},
    "gradient_accumulation": {"k": 1},
    "device": {"name": "A100-80GB"},
    "ddp": {"workers": 1},
}
CPU_ONLY_REFUSES = (
    "replace_kernel",
    "cuda_graphs",
    "faster_kernels",
    "remove_sync",
    "device",
    "vdnn",
    "gist",
)
SLOWER = settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)


def frames(graph: Graph) -> tuple[pd.DataFrame, ...]:
    """Return the tables of *graph*."""
    return graph.tasks, graph.edges, graph.lanes, graph.operators


def assert_same(one: Graph, other: Graph) -> None:
    """Assert that all tables are equal, dtypes and order included."""
    for left, right in zip(frames(one), frames(other), strict=True):
        pd.testing.assert_frame_equal(left, right)


def change(graph: Graph, name: str) -> Graph:
    """Apply *name* with its example parameters; skip examples it rightly refuses."""
    assume(has_device(graph) or name not in CPU_ONLY_REFUSES)
    return TRANSFORMS[name](graph, **CHANGES[name])


def test_every_transform_is_put_to_the_contract() -> None:
    """By an example here, or on a job of its own where random ones have not what it is about."""
    tests = "".join(path.read_text("utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    elsewhere = {name for name in TRANSFORMS if f"check_transform({name}, " in tests}

    assert set(TRANSFORMS) == set(CHANGES) | elsewhere


@pytest.mark.parametrize("name", sorted(CHANGES))
@given(graph=jobs())
@SLOWER
def test_every_what_if_keeps_the_contract(name: str, graph: Graph) -> None:
    """The input is untouched, the output valid, labelled, explained, and the same twice."""
    assume(has_device(graph) or name not in CPU_ONLY_REFUSES)

    changed = check_transform(TRANSFORMS[name], graph, **CHANGES[name])

    assert replay(changed).step_ns > 0


@pytest.mark.parametrize("name", sorted(NEUTRAL))
@given(graph=jobs())
@SLOWER
def test_neutral_parameters_change_nothing(name: str, graph: Graph) -> None:
    """Asking for what is there gives it back."""
    assume(has_device(graph) or name not in CPU_ONLY_REFUSES)

    assert_same(graph, TRANSFORMS[name](graph, **NEUTRAL[name]))


@pytest.mark.parametrize("name", ["faster_kernels", "faster_host"])
@given(graph=jobs())
@SLOWER
def test_a_speed_up_never_takes_longer(name: str, graph: Graph) -> None:
    """Faster parts never make a step longer."""
    assert replay(change(graph, name)).step_ns <= replay(graph).step_ns


@pytest.mark.parametrize("name", sorted(TRANSFORMS))
def test_the_docstring_says_what_is_assumed(name: str) -> None:
    """Effect, Assumes, Unknown, Source and an example, in this order; keyword-only parameters."""
    check_description(TRANSFORMS[name])


@pytest.mark.parametrize(("name", "job"), [("faster_kernels", cpu_job), ("amp", None)])
def test_selecting_nothing_is_an_error(name: str, job: Any) -> None:
    """A what-if that finds nothing says what it looked for."""
    graph = job() if job else gpu_job()
    if job is None:
        graph = TRANSFORMS["faster_kernels"](graph, speedup=1.0)
        names = graph.tasks["name"].cat.rename_categories(
            lambda n: n.replace("s1688gemm", "fp16_gemm")
        )
        graph = type(graph)(**{**vars(graph), "tasks": graph.tasks.assign(name=names)})

    with pytest.raises(TransformError, match="nothing to change: no"):
        TRANSFORMS[name](graph, **CHANGES[name])
