"""What is started ends with the one that started it: real processes, killed by SIGKILL."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support.processes import killed, python, wait_for

if TYPE_CHECKING:
    from pathlib import Path

PARENT = """
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1], str(os.getpid())])
child.wait()
"""
CHILD = """
import sys, time
from foretrace.tracer import child_process
{}
print("ready", flush=True)
time.sleep(600)
"""
BY_SIGNAL = "child_process.end_with(int(sys.argv[1]))"
BY_THREAD = """
child_process.platform.system = lambda: "Darwin"
child_process.WATCH_SECONDS = 0.01
child_process.end_with(int(sys.argv[1]))
"""
ORPHAN = "child_process.end_with(1 + int(sys.argv[1]))"
RANKS = """
import sys, time
from pathlib import Path
from foretrace.tracer.lab.network.loopback import Loopback
from foretrace.tracer.lab.network.rank_processes import start_ranks
with start_ranks(Loopback(2), Path(sys.argv[1])):
    print("ready", flush=True)
    time.sleep(600)
"""
SWEEP = """
import time
from foretrace.analysis import scenario_sweep
from tests.support.jobs.simple import gpu_job

def slow(graph):
    time.sleep(600)

if __name__ == "__main__":
    print("ready", flush=True)
    scenario_sweep.predict_many(gpu_job(), [(slow,)] * 40, jobs=2)
"""
CORES = """
import time
from foretrace.tracer.recording.effective_cores import effective_cores
print("ready", flush=True)
effective_cores(3, work=lambda: time.sleep(600))
"""
RATES = """
from foretrace.tracer.recording.machine_probe import probe
print("ready", flush=True)
probe()
"""
EXPORT = """
import sys
from foretrace.tracer.readers.load import load
print("ready", flush=True)
load(sys.argv[1])
"""


@pytest.mark.parametrize("how", [BY_SIGNAL, BY_THREAD])
def test_a_child_ends_with_its_parent(how: str) -> None:
    """By the kernel's signal, or because it looks after its parent itself."""
    with python("-c", PARENT, CHILD.format(how)) as parent:
        wait_for(parent, "ready")

        assert killed(parent) == []


def test_a_child_whose_parent_was_quicker_ends_at_once() -> None:
    """The signal was sent before it was asked for."""
    with python("-c", PARENT, CHILD.format(ORPHAN)) as parent:
        told, _ = parent.communicate(timeout=60)

    assert told == ""


def test_ranks_end_with_the_process_that_measures(tmp_path: Path) -> None:
    """Here on the loopback device."""
    pytest.importorskip("torch")
    with python("-c", RANKS, str(tmp_path / "log")) as parent:
        wait_for(parent, "ready")

        assert killed(parent) == []


@pytest.mark.parametrize(("program", "least"), [(SWEEP, 3), (CORES, 3), (RATES, 1)])
def test_helpers_end_with_the_process_that_asks(program: str, least: int, tmp_path: Path) -> None:
    """Those that predict (and the one that tidies up), share the cores, or measure the machine."""
    if program is RATES:
        pytest.importorskip("torch")
    script = tmp_path / "script.py"
    script.write_text(program, "utf-8")
    with python(str(script)) as parent:
        wait_for(parent, "ready")

        assert killed(parent, least) == []


@pytest.mark.skipif(sys.platform != "linux", reason="programs of others are ended there alone")
def test_an_export_ends_with_the_process_that_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here of a program that stands for nsys, and is never done."""
    (tmp_path / "nsys").write_text('#!/bin/sh\necho $$ > "$0.pid"\nexec sleep 600\n', "utf-8")
    (tmp_path / "nsys").chmod(0o755)
    (tmp_path / "job.nsys-rep").write_bytes(b"NSYS")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with python("-c", EXPORT, str(tmp_path / "job.nsys-rep")) as parent:
        while not (tmp_path / "nsys.pid").exists():
            assert parent.poll() is None

        assert killed(parent) == []


@pytest.mark.slow
def test_pairs_end_with_the_process_that_records_them(tmp_path: Path) -> None:
    """The one that measures, and the loader workers that it started."""
    pytest.importorskip("torch")
    command = ["-m", "foretrace", "record-pairs", "--cpu", "--out", str(tmp_path)]
    with python(*command, "--models", "dlrm", "--variants", "loader_2") as parent:
        assert killed(parent, least=3) == []
