"""``foretrace job regimes``: files in, text or JSON out, one sentence for bad input."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from foretrace.cli import app as cli
from foretrace.tracer.readers.load import load
from foretrace.tracer.readers.parquet import save
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

RECORDED = ROOT / "traces" / "job" / "batch-schedules"
EPOCHS = "batch_size,seconds\n32,10\n32,10\n64,\n"
COSTS = "batch_size,seconds,error\n32,10,0.02\n64,6,\n"


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Write the two files of an ordinary call."""
    for name, text in (("epochs.csv", EPOCHS), ("costs.csv", COSTS)):
        (tmp_path / name).write_text(text, "utf-8")
    return {name: str(tmp_path / f"{name}.csv") for name in ("epochs", "costs")}


def test_the_rules_stand_side_by_side(
    files: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Ours with its interval, Shockwave's and the naive one."""
    arguments = ["job", "regimes", files["epochs"], "--costs", files["costs"]]

    assert cli.run([*arguments, "--schedule", "32*2 64*8", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    rules = {row["rule"]: row for row in found["tables"][0]["rows"]}

    assert found["answers"]["whole job"]["value"] == pytest.approx(68)
    assert found["answers"]["remaining"]["unit"] == "s"
    assert rules["last epoch repeated"]["seconds"] == pytest.approx(100)
    assert rules["Dirichlet (Shockwave)"]["seconds"] == pytest.approx(20 + 4.6667 * 10 / 1, abs=20)
    assert rules["this forecast"]["low"] < 68 < rules["this forecast"]["high"]


@pytest.mark.parametrize(
    ("more", "assumed"), [(["--rising"], "never falls"), ([], "return as often")]
)
def test_without_a_schedule_the_text_says_what_is_assumed(
    more: list[str], assumed: str, files: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """And names the epoch."""
    arguments = ["job", "regimes", files["epochs"], "--costs", files["costs"], "--epochs", "10"]

    assert cli.run([*arguments, *more]) == 0
    printed = capsys.readouterr().out

    assert printed.startswith("Epoch 3 of 10, 64 samples per step\n")
    assert assumed in printed


def test_recordings_give_the_costs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of both recorded sizes, and of one in between."""
    path = tmp_path / "epochs.csv"
    path.write_text("batch_size,seconds\n16,\n", "utf-8")
    traces = [f"--trace={RECORDED / name}" for name in ("mlp-16.parquet", "mlp-256.parquet")]
    arguments = ["job", "regimes", str(path), "--schedule", "16*1 64*1 256*1", *traces]

    assert cli.run([*arguments, "--samples", "1024", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["tables"][1]["rows"]

    assert [row["samples"] for row in rows] == [16, 64, 256]
    assert rows[0]["s per epoch"] > rows[1]["s per epoch"] > rows[2]["s per epoch"]


def test_a_recording_that_drifts_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second half of its steps is a fifth slower; the other recording is quiet."""
    small, large = (load(RECORDED / name) for name in ("mlp-16.parquet", "mlp-256.parquet"))
    steps_ns = (20_000_000,) * 10 + (24_000_000,) * 10
    save(
        replace(small, meta=replace(small.meta, unprofiled_step_ns=steps_ns)),
        tmp_path / "a.parquet",
    )
    save(large, tmp_path / "b.parquet")
    path = tmp_path / "epochs.csv"
    path.write_text("batch_size,seconds\n16,\n", "utf-8")
    traces = [f"--trace={tmp_path / name}" for name in ("a.parquet", "b.parquet")]

    given = ["--schedule", "16*2", *traces, "--samples", "1024", "--json"]
    assert cli.run(["job", "regimes", str(path), *given]) == 0
    doubts = json.loads(capsys.readouterr().out)["doubts"]

    assert "a.parquet" in [each["place"].split(",")[0] for each in doubts]
    assert "b.parquet" not in [each["place"].split(",")[0] for each in doubts]


BAD_FILES = [
    ("", "epochs.csv: is empty; give a CSV with the columns batch_size, seconds"),
    ("batch_size\n32\n", "epochs.csv: there is no column 'seconds'"),
    ("batch_size,seconds\n", "there is no row below the names"),
    ("batch_size,seconds\n32,nan\n32,1\n", "epochs.csv: line 2: seconds is 'nan'; give a number"),
    ("batch_size,seconds\n32,x\n32,1\n", "epochs.csv: line 2: seconds is 'x'; give a number"),
    (
        "batch_size,seconds\n32,0\n32,1\n",
        "epochs.csv: line 2: seconds is '0'; give a number from 1e-09",
    ),
    ("batch_size,seconds\n0,1\n", "epochs.csv: line 2: batch_size is '0'; give a whole number"),
    ("batch_size,seconds\n32\n", "epochs.csv: line 2: 1 values for 2 columns"),
    ("batch_size,seconds,seconds\n32,1,2\n", "epochs.csv: two columns are called 'seconds'"),
]


@pytest.mark.parametrize(("text", "sentence"), BAD_FILES)
def test_a_bad_file_is_one_sentence(
    text: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It names the file and the line."""
    path = tmp_path / "epochs.csv"
    path.write_text(text, "utf-8")

    assert cli.run(["job", "regimes", str(path), "--epochs", "10"]) == 1
    error = capsys.readouterr().err

    assert error.count("\n") == 1
    assert sentence in error


BAD_OPTIONS = [
    ([], "give --epochs or --schedule"),
    (["--schedule", "32"], "'32' is not BATCH*EPOCHS"),
    (["--schedule", " "], "nothing in it"),
    (["--schedule", "1*999999 2*999999"], "more than 1,000,000 epochs"),
    (["--epochs", "10", "--modes", "32,x"], "'x' is no batch size"),
    (["--epochs", "10", "--modes", "9" * 5000], "is no batch size"),
    (["--epochs", "10", "--trace", "t.json"], "give --samples"),
    (["--epochs", "10"], "64 samples per step takes is not known"),
]


@pytest.mark.parametrize(("options", "sentence"), BAD_OPTIONS)
def test_bad_options_are_one_sentence(
    options: list[str],
    sentence: str,
    files: dict[str, str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It says what to give instead."""
    assert cli.run(["job", "regimes", files["epochs"], *options]) == 1
    error = capsys.readouterr().err

    assert error.count("\n") == 1
    assert sentence in error


def test_a_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One sentence, too."""
    assert cli.run(["job", "regimes", str(tmp_path / "none.csv"), "--epochs", "3"]) == 1
    assert "none.csv: cannot be read" in capsys.readouterr().err


def test_costs_given_twice(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """Which of them holds cannot be known."""
    with open(files["costs"], "a", encoding="utf-8") as file:  # noqa: PTH123
        file.write("64,7,\n")

    arguments = ["job", "regimes", files["epochs"], "--costs", files["costs"], "--epochs", "9"]

    assert cli.run(arguments) == 1
    assert "costs.csv: line 4: batch size 64 comes twice" in capsys.readouterr().err
