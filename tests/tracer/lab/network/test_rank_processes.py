"""The processes of a group, in real namespaces: what happens when one fails, ends or is late."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from foretrace.errors import RecordError
from foretrace.tracer.lab.network import rank_processes
from foretrace.tracer.lab.network.namespaces import _namespaces, shaped_network

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("namespaces")
SWEEP: dict[str, Any] = {"kind": "all_reduce", "size": 4096, "seconds": 0.01}


@contextmanager
def start(log: Path) -> Iterator[rank_processes.Ranks]:
    """Start two ranks on a shaped network."""
    with shaped_network((0, 0)) as network, rank_processes.start_ranks(network, log) as ranks:
        yield ranks


def test_ranks_answer_until_one_fails(tmp_path: Path) -> None:
    """Replies come in the order of ranks; a failure says which rank and what; nothing is left."""
    with start(tmp_path / "log") as ranks:
        first, second = ranks.tell("time_collective", **SWEEP)
        with pytest.raises(RecordError, match="rank 0: KeyError: 'gather'"):
            ranks.tell("time_collective", **{**SWEEP, "kind": "gather"})

    assert len(first) == len(second) >= 4
    assert _namespaces() == []
    assert [process.poll() for process in ranks._processes] == [0, 0]


def test_a_rank_that_ends_is_named(tmp_path: Path) -> None:
    """Its peer only sees the connection go."""
    with start(tmp_path / "log") as ranks:
        ranks._processes[1].kill()
        ranks._processes[1].wait()
        with pytest.raises(RecordError, match="rank 1 ended"):
            ranks.tell("time_collective", **SWEEP)


def test_a_rank_that_is_late_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that waits inside gloo does not come back."""
    monkeypatch.setattr(rank_processes, "GRACE_SECONDS", 0.1)
    with start(tmp_path / "log") as ranks:
        monkeypatch.setattr(rank_processes, "LEAST_PATIENCE_SECONDS", 0.2)
        os.kill(ranks._processes[1].pid, signal.SIGSTOP)
        with pytest.raises(RecordError, match="rank 0 did not answer in time"):
            ranks.tell("time_collective", **SWEEP)

    assert {process.poll() for process in ranks._processes} == {-signal.SIGKILL}
