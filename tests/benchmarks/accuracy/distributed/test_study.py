"""What is gathered for the page on distributed accuracy, and what validates what-ifs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.accuracy.distributed.ddp_jobs import MoreRow
from benchmarks.accuracy.distributed.study import Distributed, run_distributed, validating_pairs
from benchmarks.accuracy.study import read_list
from tests.support.measured.distributed_rows import network_row
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

TRACES = ROOT / "traces"


def test_what_is_absent_is_named(tmp_path: Path) -> None:
    """No archive, no public set: an empty study that says so."""
    found = run_distributed({"shared": "nowhere"}, tmp_path / "traces")

    assert (found.cells, found.ranks) == ((), None)
    assert found.absent == (
        "nersc-sc21-unet",
        "nersc-sc22-unet",
        "vtrain-nccl",
        "vtrain-iterations",
        "straggler-analysis",
        "param/dlrm_v100x8",
    )


@pytest.mark.slow
def test_the_public_set_gives_every_kind_of_row(public_traces: Path) -> None:
    """But for own cells, which have tests of their own."""
    listed = read_list(TRACES / "study.toml")
    listed["distributed"]["archives"] = []
    listed["shared"] = str(public_traces)
    found = run_distributed(listed, TRACES)

    assert [len(rows) for rows in (found.buckets, found.more)] == [2, 4]
    assert all((found.collectives, found.messages, found.timelines, found.ranks))
    assert {row.change for row in found.plans} >= {"tp <-> dp", "pp 1 -> 2"}
    assert found.absent == ()


def test_own_cells_validate_cpus_and_public_jobs_gpus() -> None:
    """The latter by the nominal network: nobody has a calibration point before buying."""
    more = MoreRow("2022", "8 after", 40.0, 32.0, 36.0, "8 before", 39.0, 70.0)
    cpu, gpu = validating_pairs(Distributed(cells=(network_row(),), more=(more,)))

    assert (cpu.hardware, cpu.transforms) == ("cpu", ("ddp",))
    assert (gpu.hardware, gpu.transforms) == ("gpu", ("ddp",))
    assert gpu.error == pytest.approx(-0.1)
    assert gpu.null_error == pytest.approx(-0.2)
