"""What is started ends with the one that started it: real processes, killed by SIGKILL."""

from __future__ import annotations

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


@pytest.mark.slow
def test_pairs_end_with_the_process_that_records_them(tmp_path: Path) -> None:
    """The one that measures, and the loader workers that it started."""
    pytest.importorskip("torch")
    command = ["-m", "foretrace", "record-pairs", "--cpu", "--out", str(tmp_path)]
    with python(*command, "--models", "dlrm", "--variants", "loader_2") as parent:
        assert killed(parent, least=3) == []
