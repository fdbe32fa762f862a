"""``foretrace record``: what it says of the recording at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from foretrace.cli import app as cli

if TYPE_CHECKING:
    from pathlib import Path


def test_a_busy_machine_is_named_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A step that does not compute all the time looks as if others had the CPU meanwhile."""
    pytest.importorskip("torch")
    job = tmp_path / "sleepy_job.py"
    job.write_text(
        "import time\nimport torch\nfrom foretrace.tracer.job import Job\n\n"
        "def job():\n"
        "    return Job(lambda: (torch.zeros(1) + 1, time.sleep(0.002)), name='sleepy')\n",
        "utf-8",
    )

    out = tmp_path / "t.parquet"
    assert cli.run(["record", f"{job}:job", "--steps", "1", "--out", str(out)]) == 0
    assert "% of the unprofiled steps other processes had the CPU" in capsys.readouterr().err
