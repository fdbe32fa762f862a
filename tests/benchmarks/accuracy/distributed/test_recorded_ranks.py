"""The rows about recordings of several ranks: literal ones, and the public DLRM on 8 GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.accuracy.distributed.recorded_ranks import DLRM, dlrm, ranks_study
from foretrace.graph.build import build
from tests.support.recordings.events import Row, call, kernel, note, op, trace

if TYPE_CHECKING:
    from pathlib import Path

REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def rank(late: float) -> list[Row]:
    """Return a step that begins *late* and meets the others from 600 to 640 µs."""
    begin = late + 110
    return [
        note("ProfilerStep#1", late, 200),
        op("step", late, 180),
        call(late + 10, 5, 1),
        kernel(begin, 640 - begin, 1, name=REDUCE),
    ]


def test_late_ranks_are_replayed_late() -> None:
    """Rank 1 begins 490 µs after rank 0, which waits for it; together, they would save that."""
    rows = [{**row, "rank": n} for n, late in enumerate((0.0, 490.0)) for row in rank(late)]
    found = ranks_study("literal", build(trace(rows, ranks=(0, 1))))

    assert (found.meetings, found.same_last) == (1, 1)
    assert found.measured_ns == 690_000
    assert abs(found.error) < 0.02
    assert found.null_error < -0.5
    assert [each.error for each in found.ranks] == [0, 0]
    assert [each.pace.rank for each in found.ranks] == [0, 1]
    assert found.pace.startswith("rank 1 sets the pace: it begins 0.5 ms after rank 0")


@pytest.mark.slow
def test_dlrm_on_eight_gpus(public_traces: Path) -> None:
    """The window within 0.1 %, every rank within 1 %, and the slow rank where it was: 7, then 4.

    Where all ranks begin together, the step is 30 % too short.
    """
    found = dlrm(public_traces)
    setter = max(found.ranks, key=lambda each: each.pace.path_ns).pace

    assert found.trace == DLRM
    assert found.measured_ns / 1e6 == pytest.approx(20.82, abs=0.01)
    assert abs(found.error) < 0.001
    assert -0.35 < found.null_error < -0.25
    assert max(abs(each.error) for each in found.ranks) < 0.02
    assert (found.meetings, found.same_last) == (8, 8)
    assert (setter.rank, setter.last_at, round(setter.begins_ns / 1e6, 1)) == (7, 5, 7.5)
    assert found.pace.startswith("rank 7 sets the pace: it begins 7.5 ms after rank 1")
