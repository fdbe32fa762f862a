"""cpu_cores: threads of a CPU job, loader workers of a GPU job."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from foretrace.errors import TransformError
from foretrace.graph.literal import literal
from foretrace.testing import check_transform
from foretrace.transforms.host.cpu_cores import cpu_cores
from tests.support.jobs.simple import cpu_job, gpu_job

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

LARGE, SMALL = "[[512,512]]", "[[8,8]]"


def operators(*named: tuple[str, str]) -> Graph:
    """Build one task of 1,000 ns per operator (name, shapes)."""
    return literal(
        [(name, "host", 0, 1_000, "forward") for name, _ in named],
        columns={"operator": range(len(named))},
        operators={
            "name": [name for name, _ in named],
            "parent": [-1] * len(named),
            "shapes": [shapes for _, shapes in named],
        },
    )


def workers(**meta: Any) -> Graph:
    """Build a GPU job whose recording says something about loader and machine."""
    graph = gpu_job(steps=1)
    return replace(graph, meta=replace(graph.meta, **meta))


def test_operators_divide_what_they_can() -> None:
    """Products 95 %, memory-bound ones 80 % on at most 4 threads, small ones nothing."""
    graph = operators(
        ("aten::mm", LARGE), ("aten::relu", LARGE), ("aten::relu", SMALL), ("aten::what", LARGE)
    )

    changed = check_transform(cpu_cores, graph, n=8, recorded=1)

    assert changed.tasks["work_ns"].tolist() == [169, 400, 1_000, 1_000]
    assert changed.meta.machine == {"threads": 8, "cores": 8}


def test_fewer_threads_take_longer_and_the_same_number_changes_nothing() -> None:
    """Back from two threads to one doubles nearly everything."""
    graph = operators(("aten::mm", LARGE))

    assert cpu_cores(graph, n=1, recorded=2).tasks["work_ns"].tolist() == [1_905]
    assert cpu_cores(cpu_job(), n=1) is not None
    assert cpu_cores(graph, n=2, recorded=2) is graph


@pytest.mark.parametrize(("cores", "share"), [(2, 0.5), (4, 0.25), (16, 0.25)])
def test_workers_that_compete_for_cores_get_faster(cores: int, share: float) -> None:
    """Three busy workers and the job on one core: 4 cores are enough."""
    graph = workers(machine={"cores": 1}, loader={"workers": 3, "cpu_share": 1.0})

    changed = check_transform(cpu_cores, graph, n=cores)

    host = graph.tasks["lane"] < 2
    assert changed.tasks["work_ns"][host].tolist() == [
        round(work * share) for work in graph.tasks["work_ns"][host]
    ]


def test_a_job_that_was_not_short_of_cores_gains_nothing() -> None:
    """It is said so."""
    changed = cpu_cores(workers(machine={"cores": 8}, loader={"workers": 3}), n=16)

    assert "they were not short of cores" in changed.notes[0]


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (gpu_job(), "does not say its number of cores; give recorded="),
        (workers(machine={"cores": 2}), "does not say how many loader workers"),
        (operators(("aten::mm", LARGE)), "does not say its number of threads"),
    ],
)
def test_what_the_trace_does_not_say_is_asked_for(graph: Graph, message: str) -> None:
    """Nothing is guessed."""
    with pytest.raises(TransformError, match=message):
        cpu_cores(graph, n=4)


def test_what_the_recording_says_cannot_be_overruled() -> None:
    """It knows its threads; saying them all the same is no mistake."""
    with pytest.raises(TransformError, match=r"recorded=4 contradicts this job \(threads: 1\)"):
        cpu_cores(cpu_job(), n=2, recorded=4)

    known = cpu_cores(cpu_job(), n=2, recorded=1).tasks["work_ns"]
    assert known.tolist() == cpu_cores(cpu_job(), n=2).tasks["work_ns"].tolist()
