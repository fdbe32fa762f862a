"""overlap_h2d: uploads leave the compute stream and run one step ahead."""

from __future__ import annotations

import pytest

from foretrace.errors import TransformError
from foretrace.graph.literal import literal
from foretrace.replaying.replay import replay
from foretrace.testing import check_transform
from foretrace.transforms.host.overlap_h2d import overlap_h2d
from tests.support.jobs.kernels import US, uploading
from tests.support.jobs.simple import cpu_job, gpu_job


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
