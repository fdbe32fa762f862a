"""Reports as text, compared with stored files; ``make golden`` rewrites them for review."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from foretrace.cli import app as cli
from tests.support.paths import GOLDEN
from tests.support.recordings.kineto import write_small_trace

if TYPE_CHECKING:
    from pathlib import Path

REPORTS = {
    "summary": ["summary", "TRACE"],
    "replay": ["replay", "TRACE"],
    "whatif": [
        "whatif",
        "TRACE",
        "faster_kernels(pattern='gemm', speedup=2)",
        "faster_host(speedup=2)",
    ],
    "validate": ["validate", "TRACE", "TRACE", "faster_kernels(speedup=2)", "--measured-ms", "0.5"],
}


@pytest.mark.parametrize("name", REPORTS)
@pytest.mark.parametrize("form", ["txt", "json"])
def test_reports_are_as_stored(
    name: str, form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The whole report is the same, byte for byte."""
    trace = str(write_small_trace(tmp_path))
    arguments = [trace if word == "TRACE" else word for word in REPORTS[name]]

    assert cli.run([*arguments, *(["--json"] if form == "json" else [])]) == 0

    shown = capsys.readouterr()
    stored = GOLDEN / f"{name}.{form}"
    if os.environ.get("GOLDEN") == "write":
        stored.write_text(shown.out, "utf-8")
    assert shown.out == stored.read_text("utf-8")
    assert not shown.err
