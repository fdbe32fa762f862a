"""The commands batch and compare: exit codes and one line per error."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from foretrace.batch.config import read_study
from foretrace.batch.items import list_items
from foretrace.batch.rows import item_path, write_rows
from foretrace.cli import app as cli
from tests.support.measured.studies import FASTER, row, write_study

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("joblib", reason="the optional extra batch is not installed")


def test_a_batch_is_run_and_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Progress goes to stderr, the report to stdout."""
    study = write_study(tmp_path, [FASTER])
    arguments = ["batch", str(study), "--jobs", "1", "--out", str(tmp_path / "out")]

    assert cli.run(arguments) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("2 items: 2 predicted, 0 failed, 0 known from before\n")
    assert "2 of 2 items in" in printed.err

    assert cli.run([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["known"] == 2


def test_results_that_cannot_be_kept_are_exit_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are shown all the same."""
    study = write_study(tmp_path, [FASTER], ("a",))
    (item,) = list_items(read_study(study), tmp_path)
    path = item_path(tmp_path / "out", item.key)
    path.parent.mkdir(parents=True)
    path.symlink_to("/dev/full")

    assert cli.run(["batch", str(study), "--jobs", "1", "--out", str(tmp_path / "out")]) == 1
    assert "No space left on device" in capsys.readouterr().out


@pytest.mark.parametrize(
    "options", [["--address", "tcp://x:1"], ["--backend", "dask"], ["--backend", "slurm"]]
)
def test_wrong_usage_is_exit_2(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is read."""
    assert cli.run(["batch", str(tmp_path / "study.toml"), *options]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_wrong_study_is_exit_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line that names the file."""
    study = write_study(tmp_path, ["apm"])

    assert cli.run(["batch", str(study), "--out", str(tmp_path / "out")]) == 1
    assert "unknown what-if 'apm'" in capsys.readouterr().err
    assert cli.run(["batch", str(tmp_path), "--out", str(tmp_path / "out")]) == 1
    assert "Is a directory" in capsys.readouterr().err


def test_compare_is_a_gate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """0 where nothing got worse, 1 where something did."""
    good, bad = tmp_path / "good.parquet", tmp_path / "bad.parquet"
    write_rows(good, [row("a")])
    write_rows(bad, [replace(row("a"), predicted_ns=80.0)])

    assert cli.run(["compare", str(good)]) == 0
    assert cli.run(["compare", str(good), str(bad)]) == 0
    assert "Not worse than the reference" in capsys.readouterr().out
    assert cli.run(["compare", str(bad), str(good)]) == 1
    assert "all: mean |error| 10.00% -> 60.00% over 1 items" in capsys.readouterr().out
    assert cli.run(["compare", str(bad), str(good), "--tolerance", "51", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["worse"] == []
    page = tmp_path / "page.md"
    assert cli.run(["compare", str(bad), "--markdown", str(page)]) == 0
    assert "| a | `amp` | 0.00 | 0.00 | 0.00 | +60.0 | +100.0 | 0.0 |" in page.read_text("utf-8")
    assert cli.run(["compare", str(good), "--tolerance", "nan"]) == 2
    assert cli.run(["compare", str(tmp_path / "absent"), str(good)]) == 1
    assert "there is no such file" in capsys.readouterr().err
