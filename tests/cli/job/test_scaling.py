"""foretrace job speed: surfaces of measured speeds and of a recording, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from foretrace.cli import app as cli
from foretrace.tracer.readers.load import load
from foretrace.tracer.readers.parquet import save
from tests.support.recordings.training import write_small_training

if TYPE_CHECKING:
    from pathlib import Path

CLUSTER = """
transport = "tcp"
devices = ["cpu0", "cpu1"]
[links.card]
medium = "network"
gb_per_s = 1.0
[links.bus]
medium = "pcie"
gb_per_s = 10.0
[[wire]]
link = "card"
pairs = [["nic", "network"]]
[[wire]]
link = "bus"
pairs = [["cpu0", "nic"], ["cpu1", "nic"]]
"""
"""A machine of two devices."""
POINTS = ((1, 1), (1, 4), (4, 1), (4, 4), (2, 3), (3, 2), (4, 2), (2, 4))


def speed(workers: int, servers: int) -> float:
    """Return the speed of a job with known terms."""
    return 1 / (4 / workers + 0.5 + 0.3 * workers / servers + 0.05 * (workers + servers))


def written(folder: Path, points: tuple[tuple[int, int], ...] = POINTS) -> str:
    """Write the speeds at *points*, 1 % off by turns, and return the path."""
    off = np.resize([0.99, 1.01], len(points))
    rows = [f"{w},{p},{speed(w, p) * each}" for (w, p), each in zip(points, off, strict=True)]
    path = folder / "speeds.csv"
    path.write_text("\n".join(["workers,servers,speed", *rows]), "utf-8")
    return str(path)


def asked(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """Return what ``foretrace job speed`` says, as JSON."""
    assert cli.run(["job", "speed", *arguments, "--json"]) == 0
    return dict(json.loads(capsys.readouterr().out))


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return the sentence with which ``foretrace job speed`` refuses."""
    assert cli.run(["job", "speed", *arguments]) == 1
    return capsys.readouterr().err


def test_speeds_are_known_anywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """At a point that was not measured, and over a grid beyond them, which is said."""
    found = asked(capsys, written(tmp_path), "--at", "3,3", "--workers", "6", "--servers", "6")
    answer = found["answers"]["3 workers and 3 servers"]
    titles = {table["title"]: table["rows"] for table in found["tables"]}

    assert answer["value"] == pytest.approx(speed(3, 3), rel=0.02)
    assert answer["interval"][0] < speed(3, 3) < answer["interval"][1]
    assert len(titles["Speed, steps/s"]) == 6
    assert titles["Speed, steps/s"][5]["6 servers"] == pytest.approx(speed(6, 6), rel=0.05)
    assert len(titles["Measure next"]) == 3
    assert "the grid goes beyond the points" in found["warnings"][-1]


def test_fits_are_judged_beside_each_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each point from all others: two fits, and a speed per worker."""
    rows = asked(capsys, written(tmp_path))["tables"][1]["rows"]

    assert [row["points"] for row in rows] == [8, 8, 8]
    assert rows[0]["median |error|, %"] < 10 < rows[2]["median |error|, %"]


def test_workers_alone_make_a_curve(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without the column of servers there is nothing to say about them."""
    path = tmp_path / "curve.csv"
    path.write_text("workers,speed\n1,2\n2,3.2\n4,4.5\n8,5.9\n", "utf-8")
    found = asked(capsys, str(path), "--noise", "0.02", "--at", "3")

    assert list(found["answers"]) == ["3 workers", "fastest: 8 workers"]
    assert found["tables"][2]["rows"][0] == {"workers": 1, "any": pytest.approx(2, rel=0.05)}


def test_what_points_leave_open_is_not_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What one worker alone takes, where only several were measured, may be next to nothing."""
    path = tmp_path / "curve.csv"
    path.write_text("workers,speed\n2,2\n3,1.5\n4,1.33333\n8,1.142857\n", "utf-8")
    found = asked(capsys, str(path), "--own-batch")

    assert list(found["answers"]) == ["8 workers", "fastest: 2 workers"]
    assert found["tables"][2]["rows"][0]["any"] is None
    assert found["tables"][3]["rows"][0]["any"] is None
    assert "1 points of the grid are left open; measure at 1 worker" in found["warnings"][0]
    assert "the points leave the speed of 1 workers" in refused(capsys, str(path), "--at", "1")


def test_points_that_say_little_are_called_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Half an interval of more than 10 % on average, and where to measure."""
    found = asked(capsys, written(tmp_path), "--noise", "0.3")

    assert "on average only; measure at" in found["warnings"][0]


def test_the_replay_gives_speeds_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a recording, over workers in a ring; points that the fit did not know stand beside it."""
    trace = str(write_small_training(tmp_path))
    options = ["--network", "10Gbps", "--gradient-mb", "10", "--workers", "12"]
    found = asked(capsys, trace, "faster_host(speedup=2)", *options)
    rows = found["tables"][-1]["rows"]

    assert [row["fitted"] for row in rows].count("no") == 4
    assert max(abs(row["error, %"]) for row in rows) < 5
    assert "12 workers" in found["answers"]


def test_a_recorded_batch_is_shared_evenly(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """32 samples: by 1, 2, 4, 8, 16 or 32 workers."""
    trace = str(write_small_training(tmp_path))
    options = ["--network", "10Gbps", "--gradient-mb", "10", "--workers", "12", "--split-batch"]
    rows = asked(capsys, trace, *options)["tables"][-1]["rows"]

    assert {row["workers"] for row in rows} == {1, 2, 4, 8}


def test_workers_fill_their_machines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Machines of two devices: three workers have no place, and are passed over."""
    cluster = tmp_path / "pairs.toml"
    cluster.write_text(CLUSTER, "utf-8")
    trace = str(write_small_training(tmp_path))
    options = ["--cluster", str(cluster), "--gradient-mb", "10", "--workers", "10"]
    rows = asked(capsys, trace, *options)["tables"][-1]["rows"]

    assert {row["workers"] for row in rows} <= {1, 2, 4, 6, 8, 10}


@pytest.mark.parametrize("pace", [[], ["--async"]])
def test_servers_of_a_recording(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], pace: list[str]
) -> None:
    """In step, and at one's own pace, where speeds add up."""
    trace = str(write_small_training(tmp_path))
    options = ["--network", "10Gbps", "--gradient-mb", "10", "--workers", "4", "--servers", "3"]
    found = asked(capsys, trace, *options, *pace)
    rows = {(row["workers"], row["servers"]): row for row in found["tables"][-1]["rows"]}

    assert {"4 workers and 3 servers"} <= set(found["answers"])
    assert all(row["from"] <= row["replay, steps/s"] <= row["to"] for row in rows.values())


def test_a_diagonal_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As many servers as workers throughout."""
    path = written(tmp_path, tuple((n, n) for n in range(1, 9)))

    assert "all 8 points have one ratio of workers to servers, 1" in refused(capsys, path)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--at", "3"], "--at 3: give workers,servers as in 4,2"),
        (["--at", "0,1"], "--at 0,1: give workers,servers as in 4,2"),
        (["--at", "10000000000,1"], "--at 10000000000,1: give workers,servers as in 4,2"),
        (["--noise", "0"], "--noise 0.0: give a share of a speed above 0"),
        (["--network", "1Gbps"], "network: of a trace only, and SAMPLES are measured speeds"),
        (["amp"], "transforms: of a trace only"),
    ],
)
def test_options_that_say_nothing_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    """One sentence each."""
    assert said in refused(capsys, written(tmp_path), *arguments)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--async", "--network", "1Gbps"], "workers at their own pace need servers"),
        (["--at", "4,2"], "--at 4,2: give workers as in 4"),
        ([], "nothing says what joins"),
        (["--noise", "0.1"], "noise: of measured speeds only"),
        (["--network", "1Gbps", "--workers", "2"], "2 points do not tell the 3 terms"),
    ],
)
def test_recordings_that_cannot_be_spread_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    """One sentence each."""
    trace = str(write_small_training(tmp_path))

    assert said in refused(capsys, trace, "--gradient-mb", "10", *arguments)


def test_a_recording_that_tells_no_length_of_a_step_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Steps that took ten thousand times what their replay takes may take anything."""
    trace = load(write_small_training(tmp_path))
    slow = replace(trace.meta, unprofiled_step_ns=(10**12,) * 4)
    path = save(replace(trace, meta=slow), tmp_path / "slow.parquet")

    said = refused(capsys, str(path), "--gradient-mb", "10", "--network", "1Gbps")

    assert "a time in the recording is broken" in said
