"""The public timelines beside their published replays: every step, stage, rank and operation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks.accuracy.distributed.operation_timelines import JOBS, timeline_rows
from foretrace.errors import TraceError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("job", JOBS)
def test_the_published_replays_are_met(public_traces: Path, job: str) -> None:
    """Within 0.01 % of nodelay, noblk and every decomposition; the measured steps within 2 %."""
    rows = timeline_rows(public_traces / "straggler-analysis", job)
    replays = [row for row in rows if row.what != "base"]
    steps = {"ST": 32, "AR": 44}[job]
    kinds = {row.what: {each.which for each in rows if each.what == row.what} for row in rows}

    assert max(abs(row.error) for row in replays) < 1e-4
    assert sum(row.what == "nodelay" for row in rows) == steps
    assert [len(kinds[what]) for what in ("stage", "dp_rank", "optype")] == [
        4,
        {"ST": 2, "AR": 4}[job],
        11,
    ]
    measured = np.array([row.error for row in rows if row.what == "base"])
    assert abs(measured.mean()) < 0.005
    assert abs(measured).max() < 0.02


def test_results_that_are_not_there_are_named(public_traces: Path, tmp_path: Path) -> None:
    """The timeline alone is not enough."""
    source = public_traces / "straggler-analysis" / "timeline-ST.json.gz"
    (tmp_path / "timeline-ST.json.gz").write_bytes(source.read_bytes())

    with pytest.raises(TraceError, match="no published results"):
        timeline_rows(tmp_path, "ST")
