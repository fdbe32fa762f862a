"""Measuring over real shaped links: a tiny campaign, its resumption, its failures."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from benchmarks.shaped_network import campaign as campaigns
from benchmarks.shaped_network.campaign import record_network
from benchmarks.shaped_network.cell_archive import read_cells
from benchmarks.shaped_network.plan import Group, Setup
from benchmarks.shaped_network.visit import Effort
from foretrace.errors import RecordError

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("torch")
TINY = Effort(0.1, 2, 2, 1, rounds=2, sweep_seconds=0.05, contention_seconds=0.2)
SWEEP = Setup("all_reduce", "sweep", (300,), {"bytes": 1 << 20})


@pytest.mark.slow
@pytest.mark.usefixtures("namespaces")
def test_a_small_campaign_measures_what_was_shaped(tmp_path: Path) -> None:
    """DDP on two ranks: bytes and drops as they must be, no faster than the link; and resumed."""
    ddp = Setup("ddp", "ddp", (300,), {"cap_mb": 25})
    company = Setup("contention", "contend", (300,), {"compute": "products"})
    groups = [Group("conv", 2, (ddp, SWEEP, company))]
    done = record_network(groups=groups, effort=TINY, out=tmp_path, minutes=2)

    assert done.left_out == ()
    cells = {cell.scheme: cell for cell in read_cells(done.archive)}
    trained, alone, contended = (cells[s] for s in ("ddp", "all_reduce", "contention"))
    assert trained.congestion_control == "reno"
    assert [len(times) for run in trained.runs for times in run.step_ns] == [2, 2, 2, 2]
    assert not [p for p in trained.problems if "sent" in p or "dropped" in p]
    sent = sum(trained.facts["bucket_bytes"])
    assert trained.step_ns > (sent - trained.burst_bytes) * 8 / 300e6 * 1e9
    assert alone.step_ns > (1 << 20) * 8 / 300e6 * 1e9
    assert len(contended.facts["compute_share"]) == 2
    assert contended.facts["stretch"] > 0
    assert trained.recording is not None
    trace = trained.recording.read()
    assert len(trace.meta.unprofiled_step_ns) == 25
    assert trace.meta.machine["cores"] == 1  # type: ignore[index]

    written = done.archive.stat().st_mtime_ns
    files = {p: p.stat().st_mtime_ns for p in (tmp_path / "cells").glob("*.cell.json")}
    again = record_network(groups=groups, effort=TINY, out=tmp_path, minutes=2)
    assert again.archive.stat().st_mtime_ns > written
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "cells").glob("*.cell.json")} == files


@pytest.mark.usefixtures("namespaces")
def test_what_fails_is_left_out_and_the_rest_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The group is started afresh after a failure."""
    unknown = Setup("gossip", "sweep", (300,), {"bytes": 4096})
    done = record_network(groups=[Group(None, 2, (unknown, SWEEP))], effort=TINY, out=tmp_path)

    assert done.left_out == ("gossip x2 bytes=4096 300mbit: rank 0: KeyError: 'gossip'",)
    assert [cell.scheme for cell in read_cells(done.archive)] == ["all_reduce"]
    assert "left out: gossip x2" in capsys.readouterr().err


@pytest.mark.usefixtures("namespaces")
def test_no_time_measures_nothing(tmp_path: Path) -> None:
    """Without a single cell there is nothing to pack."""
    groups = [Group(None, 2, (SWEEP,))]
    with pytest.raises(RecordError, match=r"nothing was measured: all_reduce x2 .*: no time"):
        record_network(groups=groups, minutes=0, out=tmp_path)
    with pytest.raises(RecordError, match="nothing was measured: no time left"):
        record_network(groups=[], out=tmp_path)


def test_an_interrupt_packs_what_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was measured before is kept."""

    def interrupted(_campaign: campaigns.Campaign, _group: Group) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(campaigns, "unavailable", lambda: None)
    monkeypatch.setattr(campaigns.Campaign, "measure", interrupted)
    with pytest.raises(RecordError, match="nothing was measured"):
        record_network(groups=[Group(None, 2, (SWEEP,))], out=tmp_path)
    assert "stopped: packing what there is" in capsys.readouterr().err


def test_where_there_are_no_shaped_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text says why; nothing is written."""
    monkeypatch.setattr(campaigns, "unavailable", lambda: "network namespaces need root")

    with pytest.raises(RecordError, match="no shaped network here: network namespaces need root"):
        record_network(out=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_controller_is_light() -> None:
    """It shares the cores with the ranks, and the machine may have torch and nothing else."""
    script = (
        "import sys, benchmarks.shaped_network.campaign\n"
        "heavy = {'torch', 'pandas', 'pyarrow', 'msgspec', 'numba', 'networkx', 'typer', 'rich'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    printed = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert printed.stdout == "[]\n"
