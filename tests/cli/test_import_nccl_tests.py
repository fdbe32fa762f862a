"""``foretrace import-nccl-tests``: logs in, a table out, and costs from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.cli import app as cli
from foretrace.transforms.cluster.cost_tables import read_table
from foretrace.transforms.cluster.presets import load_cluster
from foretrace.transforms.collectives.cost import collective_cost
from tests.support.recordings.nccl_tests import TODAY, write_log

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_log_becomes_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What was written is said, what was left out is counted."""
    out = tmp_path / "table.parquet"
    text = TODAY + " 8 2 float sum -1 nan?\n"

    assert cli.run(["import-nccl-tests", str(write_log(tmp_path, text)), "--out", str(out)]) == 0

    said = capsys.readouterr()
    assert said.out == f"wrote {out}: all_reduce of 4 ranks, 2 sizes\n"
    assert said.err == f"foretrace: {tmp_path / 'x.log'}: 1 line(s) could not be read\n"
    cost = collective_cost(
        load_cluster("dgx-a100"), range(4), "all_reduce", 1 << 20, table=read_table(out)
    )
    assert (cost.ns, cost.source) == (102_000, "table")


def test_the_cluster_says_what_joins_the_ranks(tmp_path: Path) -> None:
    """Eight ranks on machines of four: two of them, whatever the preset has."""
    text = TODAY.replace("device  3 [0x03] NVIDIA A100-SXM4-80GB\n", "device  3 [0x03] mystery\n")
    one, two = tmp_path / "one.parquet", tmp_path / "two.parquet"
    path = str(write_log(tmp_path, text))
    command = ["import-nccl-tests", path, "--cluster", "perlmutter-2022"]

    assert cli.run([*command, "--out", str(one)]) == 0
    assert cli.run([*command, "--ranks", "8", "--out", str(two)]) == 0

    assert read_table(one).entries["topology"].tolist() == ["mesh"] * 2
    assert read_table(two).entries["topology"].tolist() == ["mesh, 4 in a machine, 800 Gbit/s"] * 2


def test_tables_are_merged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A table among the logs is taken as it is; later files win."""
    old, new = tmp_path / "old.parquet", tmp_path / "new.parquet"
    first = write_log(tmp_path, TODAY, "first.log")
    second = write_log(tmp_path, TODAY.replace("all_reduce", "broadcast"), "second.log")
    cli.run(["import-nccl-tests", str(first), "--out", str(old)])

    assert cli.run(["import-nccl-tests", str(old), str(second), "--out", str(new)]) == 0

    assert "all_reduce of 4 ranks, 2 sizes; broadcast of 4" in capsys.readouterr().out
    assert len(read_table(new)) == 4


def test_what_cannot_be_imported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line, and no file."""
    out = tmp_path / "table.parquet"
    for name, said in (("empty.log", "no result of nccl-tests"), ("gone.log", "No such file")):
        if name == "empty.log":
            write_log(tmp_path, "", name)
        path = str(tmp_path / name)
        assert cli.run(["import-nccl-tests", path, "--out", str(out)]) == 1
        assert said in capsys.readouterr().err
    assert not out.exists()
