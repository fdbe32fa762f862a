"""MeasuredCell cells: what is computed from them, when they prove nothing, how they are kept."""

from __future__ import annotations

import json
import lzma
import tarfile
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.shaped_network.cell_archive import read_cells
from benchmarks.shaped_network.cells import (
    CELLS,
    CellRun,
    MeasuredCell,
    collective_costs,
    write_cells,
)
from foretrace.errors import TraceError
from foretrace.tracer.lab.network.collective_sweep import CollectiveCost
from tests.support.measured.cells import cell, run

if TYPE_CHECKING:
    from pathlib import Path


def test_times_are_trimmed_means_over_visits_and_ranks() -> None:
    """One outlier in five is cut; two ranks and two visits are averaged."""
    found = cell(
        CellRun(((10, 10, 10, 10, 90), (20, 20, 20, 20, 20))),
        CellRun(((10, 10, 10, 10, 10), (20, 20, 20, 20, 20))),
    )

    assert found.step_ns == 15
    assert (found.forward_ns, found.lone_ns, found.lone_forward_ns) == (None, None, None)


def test_a_server_without_steps_counts_nowhere() -> None:
    """Its list is empty, and the mean is that of the workers."""
    assert cell(CellRun(((10,), (20,), ()))).step_ns == 15


@pytest.mark.parametrize(
    ("runs", "noise"),
    [
        ((CellRun(((100,),)), CellRun(((103,),))), 0.03),
        ((CellRun(((100, 100, 110, 110),)),), 0.1),
        ((CellRun(((100,), ())),), 0.0),
    ],
    ids=["two visits", "halves of one", "one step"],
)
def test_noise_is_how_far_repeats_are_apart(runs: tuple[CellRun, ...], noise: float) -> None:
    """Visits where there are several, halves otherwise."""
    assert cell(*runs).noise == noise


def test_spread_is_that_of_single_steps() -> None:
    """Standard deviation over mean; of one step none is known."""
    assert cell(CellRun(((90, 110),))).spread == pytest.approx(0.141421)
    assert cell(CellRun(((90,),))).spread == 0.0


@pytest.mark.parametrize(
    ("visit", "problem"),
    [
        (run(drops=3), "3 packets dropped"),
        (run(tx_bytes=(2_000_000, 2_100_000)), "rank 1 sent 2,100,000 bytes, not 2,000,000"),
        (run(forward_ns=((44, 44), (44, 44))), "forward differs by +10.0% from the job alone"),
    ],
)
def test_why_a_cell_proves_nothing(visit: CellRun, problem: str) -> None:
    """Each reason is named; without one the cell is conclusive."""
    assert cell(run(), run()).is_conclusive
    assert cell(visit).problems == (problem,)
    assert not cell(visit).is_conclusive


def test_repeats_that_differ_prove_nothing() -> None:
    """More than 5 % between the visits."""
    slower = run(step_ns=((106, 106), (106, 106)))

    assert cell(run(), slower).problems == ("repeats differ by 6.0%",)
    assert cell(run(), run(step_ns=((104, 104), (104, 104)))).is_conclusive


def test_bytes_may_be_off_by_headers() -> None:
    """1 % and 50 KB; a scheme without a formula is not judged."""
    assert cell(run(tx_bytes=(2_069_000, 2_000_000))).is_conclusive
    assert cell(run(tx_bytes=(9, 9), expected_bytes=(None, None))).is_conclusive


def test_collectives_make_a_cost_table() -> None:
    """Those within one rack; trainings are left out."""
    alone = replace(cell(CellRun(((8, 8, 8, 8),))), scheme="all_reduce", options={"bytes": 4096})
    over_racks = replace(alone, racks=(0, 1))

    assert collective_costs([cell(run()), alone, over_racks]) == [
        CollectiveCost("all_reduce", ranks=2, bytes=4096, rate_mbit=300, ns=8, spread=0.0)
    ]


KINETO = {
    "schemaVersion": 1,
    "traceEvents": [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 2}
    ],
}
JOBS = {
    "gpt-x2": {
        "trace": "gpt-x2.json",
        "facts": {"batch_size": 3, "unprofiled_step_ns": [40]},
        "parameters": [["head.weight", [4, 2], "torch.float32"]],
    }
}


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Write an archive of one training and one collective."""
    (tmp_path / "gpt-x2.json.xz").write_bytes(lzma.compress(json.dumps(KINETO).encode()))
    cells = [cell(run(), run()), replace(cell(run()), scheme="send", job=None)]
    write_cells(tmp_path, cells, JOBS, tmp_path / "network.tar")
    return tmp_path / "network.tar"


def test_cells_come_back_as_written(archive: Path, tmp_path: Path) -> None:
    """With the recording that a prediction starts from, read when it is asked for."""
    with tarfile.open(archive) as packed:
        assert sorted(packed.getnames()) == [CELLS, "gpt-x2.json.xz"]

    for where in (archive, tmp_path):
        training, alone = read_cells(where)
        assert MeasuredCell(**{n: getattr(training, n) for n in vars(cell(run()))}) == cell(
            run(), run()
        )
        assert alone.recording is None
        assert training.recording is not None
        assert training.recording.name == "gpt-x2"
        assert training.recording.parameters == (("head.weight", (4, 2), "torch.float32"),)
        trace = training.recording.read()
        assert trace.meta.batch_size == 3
        assert trace.meta.unprofiled_step_ns == (40,)
        assert trace.events["name"].tolist() == ["aten::mm"]
        assert training.recording.read() is trace


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, "holds no cells.json"),
        ("{", "cells.json is broken: JSONDecodeError"),
        ({"cells": [], "jobs": {"a": {}}}, "cells.json is broken: KeyError 'trace'"),
        ({"cells": [{"name": 3}], "jobs": {}}, "cells.json is broken: ValidationError"),
        (
            {"cells": [], "jobs": {"a": {"trace": "a.json", "facts": {}, "parameters": []}}},
            "cells.json names a.json.xz, which is not there",
        ),
    ],
)
def test_a_broken_archive_is_one_clear_line(content: Any, text: str, tmp_path: Path) -> None:
    """The text names the folder, the file and what is wrong."""
    if content is not None:
        written = content if isinstance(content, str) else json.dumps(content)
        (tmp_path / CELLS).write_text(written)

    with pytest.raises(TraceError, match=str(tmp_path)) as caught:
        read_cells(tmp_path)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    """A missing file and a file of another kind."""
    (tmp_path / "notes.txt").write_text("nothing")

    with pytest.raises(TraceError, match=r"absent.tar does not exist"):
        read_cells(tmp_path / "absent.tar")
    with pytest.raises(TraceError, match="is no archive"):
        read_cells(tmp_path / "notes.txt")
