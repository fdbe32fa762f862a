"""What a prediction remarks on: who sets the pace."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from foretrace.analysis.evidence.validation_scope import host_share
from foretrace.analysis.prediction import predict
from foretrace.analysis.unchanged.identity import identity
from foretrace.graph.infer.steps.window import RUNS_AHEAD
from foretrace.graph.literal import literal
from foretrace.transforms.scenario import parse_scenario
from tests.support.jobs.simple import cpu_job, gpu_job

if TYPE_CHECKING:
    from foretrace.graph.model import Graph
    from foretrace.transforms.scenario import Scenario

FASTER = parse_scenario(["faster_kernels(speedup=4)"])


def job(*, host: int, device: int) -> Graph:
    """Return a launch of *host* ns and a gemm of *device* ns per step, free of each other."""
    graph = literal(
        [("launch", "launch", 0, host, "forward"), ("sgemm", "kernel", 1, device, "forward")],
        [(0, 1, "launch")],
        wrap=True,
        measured_step_ns=float(max(host, device)),
    )
    return replace(graph, notes=(RUNS_AHEAD,)) if device > host else graph


def warned(graph: Graph, scenario: Scenario = FASTER) -> str:
    """Return the warnings of a prediction."""
    return "\n".join(predict(graph, scenario).warnings)


def test_a_faster_device_makes_the_host_the_limit() -> None:
    """What held of the recording is no longer said, and what holds now is."""
    found = warned(job(host=50_000, device=100_000))

    assert RUNS_AHEAD not in found
    assert "the host sets the pace after the change: 100% of the critical path is its own" in found
    assert RUNS_AHEAD in identity(job(host=50_000, device=100_000)).warnings


def test_a_device_that_stays_the_limit_is_said_to_be() -> None:
    """A quarter of 100 µs is still longer than 10."""
    found = warned(job(host=10_000, device=100_000))

    assert RUNS_AHEAD in found
    assert "the host sets" not in found


def test_a_host_that_was_the_limit_is_named_where_nothing_is_gained() -> None:
    """The device was waiting before, too."""
    found = warned(job(host=100_000, device=50_000))

    assert "the host sets the pace before and after the change" in found
    assert "the host sets" not in warned(
        job(host=100_000, device=50_000), parse_scenario(["faster_host(speedup=1.5)"])
    )


def test_another_device_does_not_help_a_host_bound_job() -> None:
    """``device(name=...)`` says so."""
    graph = gpu_job(steps=3, work=6_000)
    assert host_share(identity(graph).critical_path) > 0.5

    assert "the host sets the pace" in warned(graph, parse_scenario(['device(name="H100")']))


def test_a_job_without_a_device_has_no_other_pace() -> None:
    """On a CPU it goes without saying."""
    assert "sets the pace" not in warned(cpu_job(), parse_scenario(["faster_host(speedup=4)"]))


def test_page_faults_are_said_again() -> None:
    """A job that fetches memory in every step may do so more or less often after a change."""
    graph = cpu_job()
    faulty = replace(graph, meta=replace(graph.meta, warnings={"page_faults": 900}))
    update = parse_scenario(["faster_host(speedup=2)"])

    assert "900 page faults a step" in warned(faulty, update)
    assert "page faults" not in warned(graph, update)
