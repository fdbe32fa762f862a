"""The process that records one job of a batch, called in this one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from foretrace.batch.record_process import job_of, main
from foretrace.tracer.readers.load import load

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("torch")


def test_names_mean_jobs(tmp_path: Path) -> None:
    """Of the zoo in its small shape, or a user's own."""
    own = tmp_path / "own_jobs.py"
    own.write_text(
        "from foretrace.tracer.job import Job\n"
        "def job():\n"
        "    return Job(lambda: sum(range(1000)), name='sums')\n",
        "utf-8",
    )

    assert job_of("dlrm", "cpu").name == "dlrm fp32 loop"
    assert job_of(f"{own}:job", "cpu").name == "sums"
    assert main([f"{own}:job", "cpu", str(tmp_path / "job.parquet")]) == 0
    assert load(tmp_path / "job.parquet").meta.unprofiled_step_ns


def test_failures_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The last line on stderr is what the batch shows."""
    assert main(["gnm", "cpu", str(tmp_path / "job.parquet")]) == 1
    assert capsys.readouterr().err.startswith("no model is called 'gnm'")
