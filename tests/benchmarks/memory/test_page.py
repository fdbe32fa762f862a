"""The page on memory: what it says of peaks that are known."""

from __future__ import annotations

from benchmarks.memory.jobs import JOBS, SIDES, Peak
from benchmarks.memory.page import memory_page
from benchmarks.memory.public import PublicPeak
from benchmarks.memory.published import Batch
from benchmarks.truth.spec import find_job


def test_errors_stand_beside_their_job_and_what_was_refused_is_said() -> None:
    """A form that a job has not is an empty cell, and no error of nothing."""
    peaks = [
        Peak("a", "base", 2_000_000, 2_000_000.0),
        Peak("a", "amp", 1_000_000, 1_100_000.0),
        Peak("a", "fused_optimizer", 1_000_000, None),
        Peak("b", "base", 4_000_000, 3_900_000.0),
    ]
    public = [
        PublicPeak("old", True, 10e6, 9e6, None, ""),
        PublicPeak("new", False, 10e6, 10e6, 8e6, "shapes"),
    ]
    batches = [Batch("T1", "them", (), 640, True, 9e9, 8e9, 500)]
    text = memory_page(peaks, public, batches)

    assert "| a | 2.0 MB | +0.0% | +10.0% | refused |" in text
    assert "| b | 4.0 MB | -2.5% |  |  |" in text
    assert "| all jobs | 1.3 / 2.3 / 2.5 | 10.0 / 10.0 / 10.0 |  |" in text
    assert "| `old` | 10.0 MB (swing) | -10.0% | nothing tells |  |" in text
    assert "| `new` | 10.0 MB | +0.0% | -20.0% | shapes |" in text
    assert "| T1, them | fp32 | 640, the largest | 9.0 GB of 8.0 GB | **no** | 500 |" in text


def test_no_job_is_held_out() -> None:
    """And each has what is asked."""
    jobs = [find_job(name) for name in JOBS]

    assert len(jobs) >= 10
    assert not [job.name for job in jobs if job.held_out]
    assert all(set(job.changes) & set(SIDES) for job in jobs)
