"""cuda_graphs: what is captured, what stays, and what a capture would refuse."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from foretrace.errors import TransformError
from foretrace.graph.literal import literal
from foretrace.graph.model import Platform
from foretrace.replaying.replay import replay
from foretrace.testing import check_transform
from foretrace.transforms.compute.cuda_graphs import LAUNCH, cuda_graphs
from foretrace.transforms.edit.provenance import warnings
from foretrace.transforms.host.remove_sync import remove_sync
from tests.support.jobs.simple import cpu_job, gpu_job

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

NAME = "cudaGraphLaunch (predicted)"


def test_one_launch_stands_for_all() -> None:
    """Of a step's host tasks only loading, the graph's launch and the last wait are left."""
    changed = check_transform(cuda_graphs, gpu_job(steps=2))

    host = changed.tasks[changed.tasks["lane"] < 2]
    assert sorted(host["name"].tolist()) == sorted(
        2 * ["DataLoader.__next__", NAME, "cudaStreamSynchronize"]
    )
    launches = changed.edges[changed.edges["kind"] == "launch"]
    assert (changed.tasks["name"].iloc[launches["src"]] == NAME).all()
    assert len(launches) == 2 * 8


def test_a_job_that_the_host_holds_up_gains() -> None:
    """Eight kernels of 1 µs take the host 55 µs; captured, the device takes over."""
    graph = gpu_job(steps=4, work=1_000, load=0)

    assert replay(cuda_graphs(graph)).step_ns < 0.6 * replay(graph).step_ns


def test_gaps_between_captured_kernels_shrink() -> None:
    """A gap of 2,000 ns becomes 1,100; the one into the next step's graph stays."""
    tasks = [("cudaLaunchKernel", "launch", 0, 5_000, "forward")] * 2
    tasks += [("gemm", "kernel", 1, 9_000, "forward")] * 2
    graph = literal(
        tasks, [(0, 2, "launch"), (1, 3, "launch")], lag_ns=2_000, platform=Platform(queue_depth=2)
    )

    changed = cuda_graphs(graph)

    stream = changed.edges[changed.edges["kind"] == "stream"]
    assert stream["lag_ns"].tolist() == [1_100]
    assert changed.tasks["work_ns"].tolist() == [9_000, 9_000, LAUNCH.value]
    assert changed.platform.queue_depth is None


def test_phases_apart_are_captured_apart() -> None:
    """Forward and optimizer with an eager backward between them: two graphs per step."""
    changed = check_transform(cuda_graphs, gpu_job(steps=1), phases="forward+optimizer")

    assert (changed.tasks["name"] == NAME).sum() == 2
    assert changed.tasks["name"].tolist().count("cudaLaunchKernel") == 3


def reading_job() -> Graph:
    """Build a step that waits for the device between two kernels, as ``.item()`` does."""
    return literal(
        [
            ("cudaLaunchKernel", "launch", 0, 5_000, "forward"),
            ("cudaStreamSynchronize", "sync", 0, 5_000, "forward"),
            ("cudaLaunchKernel", "launch", 0, 5_000, "backward"),
            ("gemm", "kernel", 1, 9_000, "forward"),
            ("gemm", "kernel", 1, 9_000, "backward"),
        ],
        [(0, 3, "launch"), (2, 4, "launch")],
        columns={
            "wait": ["none", "stream", "none", "none", "none"],
            "wait_lane": [-1, 1, -1, -1, -1],
            "start_ns": [0, 10_000, 20_000, 5_000, 25_000],
        },
    )


def test_a_wait_inside_cannot_be_captured() -> None:
    """The error names the wait; taken out, or allowed, the capture goes through."""
    graph = reading_job()

    with pytest.raises(TransformError, match=r"capture cudaStreamSynchronize \(1 per step\)"):
        cuda_graphs(graph)
    for changed in (
        cuda_graphs(remove_sync(graph)),
        cuda_graphs(graph, allow="Synchronize"),
    ):
        assert sorted(changed.tasks["name"]) == [NAME, "gemm", "gemm"]


def test_an_allowance_for_nothing_is_said() -> None:
    """It may be a slip; where something else waits, the error says that it does not match."""
    graph = remove_sync(reading_job())

    assert warnings(cuda_graphs(graph, allow="Synchronise")) == (
        "cuda_graphs: allow='Synchronise' matches no wait or loading in the captured part",
    )
    assert warnings(cuda_graphs(reading_job(), allow="Synchronize")) == ()
    with pytest.raises(TransformError, match=r"an allow that matches it \('Stop' does not\)"):
        cuda_graphs(reading_job(), allow="Stop")


@pytest.mark.parametrize(
    ("phases", "message"),
    [("load", "phases='load' is unknown; choose one of"), ("", "phases='' is unknown")],
)
def test_phases_are_checked(phases: str, message: str) -> None:
    """Only what a step computes can be captured."""
    with pytest.raises(TransformError, match=message):
        cuda_graphs(gpu_job(), phases=phases)


def test_a_cpu_job_has_nothing_to_capture() -> None:
    """The error says why."""
    with pytest.raises(TransformError, match="saves the launches of a GPU, and this job uses none"):
        cuda_graphs(cpu_job())
