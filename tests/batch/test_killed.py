"""Batches that are killed by SIGKILL at any point: nothing runs on, and the next run goes on."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from foretrace.batch.measure import PAIRS
from foretrace.batch.rows import read_rows
from foretrace.batch.run import run_batch
from tests.support.measured.studies import write_study
from tests.support.paths import ROOT
from tests.support.processes import killed, python, wait_for

pytest.importorskip("joblib", reason="the optional extra batch is not installed")

SPEEDUPS = [f"faster_host(speedup={1 + number / 10})" for number in range(16)]

KILLED = """
import os, random, signal, sys, time
from pathlib import Path
from foretrace.batch.run import run_batch
study, undisturbed, out = map(Path, sys.argv[1:])
total = len(run_batch(study, undisturbed, jobs=1).rows)
chance, wanted = random.Random(20260101), 0
for number in range(10):
    wanted = min(wanted + chance.randrange(5), total)
    child = os.fork()
    if not child:
        run_batch(study, out, jobs=1 + number % 2)
        os._exit(0)
    while len(list((out / "items").glob("*.parquet"))) < wanted:
        time.sleep(0.0005)
    time.sleep(chance.uniform(0, 0.03))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
print(wanted, run_batch(study, out, jobs=2).known)
"""
SLOW = """
import os, time
from pathlib import Path
def slow(graph):
    Path(__file__).with_name(f"{os.getpid()}.begun").touch()
    time.sleep(600)
"""
ENDED_WHILE_WRITING = """
import os, sys
from itertools import count
from pathlib import Path
from foretrace.batch.run import run_batch
written = count(1)
os.fsync = lambda _file: next(written) == 2 and os.kill(os.getpid(), 9)
run_batch(*map(Path, sys.argv[1:]), jobs=1)
"""
MODELS = """
[[model]]
names = ["dlrm"]
changes = {changes}
rounds = 2
calibration_seconds = 0.0
"""
ENDLESS = """
import time
from foretrace.tracer.job import Job

def job():
    return Job(lambda: time.sleep(600), name="endless")
"""
RECORDED = 'scenarios = ["amp"]\n[[model]]\nnames = ["jobs.py:job"]\n'


@pytest.mark.slow
def test_killed_ten_times_and_resumed_gives_the_same_table(tmp_path: Path) -> None:
    """At random points, in turn in one process and in two of loky's; the last run is one of these.

    It finds what the killed ones had finished.
    """
    study = write_study(tmp_path, SPEEDUPS)
    places = [str(tmp_path / name) for name in ("undisturbed", "killed")]
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(study), *places],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
    )

    tables = [(Path(place) / "results.parquet").read_bytes() for place in places]
    assert tables[0] == tables[1]
    assert len(read_rows(places[0])) == 32
    killed_at, known = map(int, done.stdout.split())
    assert 0 < killed_at <= known <= 32


@pytest.mark.slow
def test_workers_end_with_the_batch(tmp_path: Path) -> None:
    """Two of loky's, each in the middle of a what-if that takes for ever."""
    (tmp_path / "slow.py").write_text(SLOW, "utf-8")
    study = write_study(tmp_path, [f"{tmp_path / 'slow.py'}:slow"])
    command = ["-m", "foretrace", "batch", str(study), "--jobs", "2", "--out", str(tmp_path / "o")]
    with python(*command) as batch:
        while len(list(tmp_path.glob("*.begun"))) < 2:
            assert batch.poll() is None

        assert killed(batch, least=3) == []  # loky has a process that tidies up


def test_half_written_results_go_at_the_next_start(tmp_path: Path) -> None:
    """The batch is ended while it keeps its second row."""
    study, out = write_study(tmp_path, SPEEDUPS[:1]), tmp_path / "out"
    with python("-c", ENDED_WHILE_WRITING, str(study), str(out)) as batch:
        assert batch.wait() == -signal.SIGKILL
    half = list((out / "items").glob(".*"))
    resumed = run_batch(study, out, jobs=1)

    assert len(half) == 1
    assert resumed.known == 1
    assert [row.error for row in resumed.rows] == [None, None]
    assert not [*out.rglob(".*")]


@pytest.mark.slow
def test_what_was_measured_before_the_kill_is_kept(tmp_path: Path) -> None:
    """The process that measures the second change ends; the resumed batch measures that one."""
    pytest.importorskip("torch")
    study, out = tmp_path / "study.toml", tmp_path / "out"
    study.write_text(MODELS.format(changes=json.dumps(["fused", "batch_x2"])), "utf-8")
    with python("-m", "foretrace", "batch", str(study), "--out", str(out)) as batch:
        wait_for(batch, "dlrm fused")
        while not (out / PAIRS / "dlrm" / "batch_x2").exists():
            assert batch.poll() is None
        assert killed(batch) == []
    kept = _make_measured(out)
    rows = run_batch(study, out, jobs=1).rows

    assert [(row.recording, row.error) for row in rows] == [
        ("cpu/dlrm/fused", None),
        ("cpu/dlrm/batch_x2", None),
    ]
    assert kept
    assert _make_measured(out).items() >= kept.items()


@pytest.mark.slow
def test_the_recorder_ends_with_the_batch(tmp_path: Path) -> None:
    """In the middle of a step that takes for ever."""
    pytest.importorskip("torch")
    study = tmp_path / "study.toml"
    study.write_text(RECORDED, "utf-8")
    (tmp_path / "jobs.py").write_text(ENDLESS, "utf-8")
    with python("-m", "foretrace", "batch", str(study), "--out", str(tmp_path / "out")) as batch:
        wait_for(batch, "jobs.py:job")

        assert killed(batch) == []


def _make_measured(out: Path) -> dict[Path, bytes]:
    """Return the content of all pairs in *out*."""
    return {path: path.read_bytes() for path in out.rglob("*.pair.json")}
