"""overlap_h2d: uploads leave the compute stream and run one step ahead."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from foretrace.errors import TransformError
from foretrace.graph.literal import literal
from foretrace.replaying.replay import replay
from foretrace.testing import check_transform
from foretrace.transforms.host.overlap_h2d import overlap_h2d
from tests.support.jobs.simple import cpu_job, gpu_job

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

US = 1_000


def uploading(steps: int = 3, *, pageable: bool = True) -> Graph:
    """Build steps that upload 400 µs (and wait for it), then compute 1,000 µs."""
    memory = "Pageable" if pageable else "Pinned"
    tasks, edges = [], []
    for step in range(steps):
        row = 5 * step
        tasks += [
            ("cudaMemcpyAsync", "launch", 0, 300 * US, "forward"),
            ("cudaStreamSynchronize", "sync", 0, 5 * US, "forward"),
            ("cudaLaunchKernel", "launch", 0, 5 * US, "forward"),
            (f"Memcpy HtoD ({memory} -> Device)", "memcpy", 1, 400 * US, "forward"),
            ("gemm", "kernel", 1, 1_000 * US, "forward"),
        ]
        edges += [(row, row + 3, "launch", 6 * US), (row + 2, row + 4, "launch", 6 * US)]
    return literal(
        tasks,
        edges,
        columns={
            "step": np.repeat(np.arange(steps, dtype=np.int32), 5),
            "start_ns": np.arange(5 * steps) * US,
            "wait": ["own", "stream", "none", "none", "none"] * steps,
            "wait_lane": [-1, 1, -1, -1, -1] * steps,
        },
        wrap=True,
    )


def test_the_device_only_computes() -> None:
    """1,400 µs per step become the 1,000 of the kernel."""
    before = uploading()

    changed = check_transform(overlap_h2d, before)

    assert replay(before).step_ns >= 1_400 * US
    assert replay(changed).step_ns == 1_000 * US


@pytest.mark.parametrize(("pageable", "work"), [(True, 200 * US), (False, 400 * US)])
def test_copies_move_to_a_stream_of_their_own(pageable: bool, work: int) -> None:  # noqa: FBT001
    """From pageable memory they took twice as long; waits after them go."""
    tasks = check_transform(overlap_h2d, uploading(pageable=pageable)).tasks

    copies = tasks[tasks["kind"] == "memcpy"]
    assert copies["work_ns"].tolist() == [work] * 3
    assert copies["lane"].tolist() == [2] * 3
    assert (tasks["kind"] == "sync").sum() == 0
    assert (tasks["wait"] == "none").all()


def test_a_step_waits_for_what_was_uploaded_the_step_before() -> None:
    """The first step of a window waits for the last upload of the window before."""
    changed = overlap_h2d(uploading())

    events = changed.edges[changed.edges["kind"] == "event"]
    step = changed.tasks["step"].to_numpy()
    found = zip(step[events["src"]], step[events["dst"]], events["shift"], strict=True)
    assert sorted(found) == [(0, 1, 0), (1, 2, 0), (2, 0, 1)]


@pytest.mark.parametrize("job", [gpu_job, cpu_job])
def test_without_uploads_nothing_is_to_do(job: object) -> None:
    """The error says what was looked for."""
    assert callable(job)
    with pytest.raises(TransformError, match=r"no upload \(memcpy HtoD\) by the training process"):
        overlap_h2d(job())


def test_uploads_on_a_stream_of_their_own_are_left_alone() -> None:
    """They overlap already; a stream of nothing but uploads, step after step, has no end."""
    graph = literal(
        [
            ("cudaMemcpyAsync", "launch", 0, 9, "forward"),
            ("Memcpy HtoD (Pinned -> Device)", "memcpy", 1, 90, "forward"),
        ],
        [(0, 1, "launch")],
        wrap=True,
    )

    with pytest.raises(TransformError, match="no upload"):
        overlap_h2d(graph)
