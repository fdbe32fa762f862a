"""Processes that record one job together: each has its rank, its own file, and the same steps."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from foretrace.tracer.readers.load import load
from foretrace.tracer.recording.process_rank import process_rank
from foretrace.tracer.recording.recorder import Block, Recorder

if TYPE_CHECKING:
    from pathlib import Path

torch = pytest.importorskip("torch")

JOB = """
import torch
import torch.distributed as dist
from foretrace.tracer.recording.record import recording

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
with recording(model=model, out="trace.parquet", steps=2, warmup=1, windows=2) as session:
    while not session.done:
        model(torch.ones(2, 4)).sum().backward()
        session.step()
dist.destroy_process_group()
"""


def test_every_rank_writes_a_file_of_its_own(tmp_path: Path) -> None:
    """Both ranks record to one name; their files make one trace of both, on one clock."""
    (tmp_path / "job.py").write_text(JOB)
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    subprocess.run([*run, "job.py"], cwd=tmp_path, check=True, capture_output=True)

    assert not (tmp_path / "trace.parquet").exists()
    trace = load([tmp_path / f"trace.rank{rank}.parquet" for rank in (0, 1)])
    assert (trace.meta.ranks, trace.meta.world_size) == ((0, 1), 2)


def test_a_process_of_its_own_has_no_rank(tmp_path: Path) -> None:
    """Neither without torch.distributed in use, nor as the only process of a group."""
    assert process_rank() is None
    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1
    )
    try:
        assert process_rank() is None
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize(
    ("same_window", "plain_ns", "kept"),
    [
        (False, [], "third"),
        (False, [1, 1, 1], "first"),
        (False, [4], "second"),
        (True, [1], "second"),
    ],
)
def test_ranks_keep_the_same_window(
    *, same_window: bool, plain_ns: list[int], kept: str, tmp_path: Path
) -> None:
    """Lengths differ from rank to rank: only the middle one in time is the same on all.

    One rank keeps what is nearest to its steps without the profiler.
    """

    class Named:
        def __init__(self, name: str) -> None:
            self.name = name

        def export(self, path: Path) -> None:
            path.write_text(self.name)

    recorder = Recorder(None, [Block("profiled", 1)], same_window=same_window)  # type: ignore[arg-type]
    recorder.plain_ns = plain_ns
    recorder._windows = [(1.0, Named("first")), (3.0, Named("second")), (2.0, Named("third"))]  # type: ignore[list-item]
    recorder.export(tmp_path / "window")

    assert (tmp_path / "window").read_text() == kept
