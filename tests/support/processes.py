"""Processes that are killed, and what becomes of those that they started."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from threading import Timer
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS = 120.0
"""After which a process is ended, so that a test fails and does not hang."""


@contextmanager
def python(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run an interpreter with *arguments* in the project's folder; its output is read by lines."""
    with subprocess.Popen(
        [sys.executable, *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        timer = Timer(SECONDS, process.kill)
        timer.start()
        try:
            yield process
        finally:
            timer.cancel()
            process.kill()


def wait_for(process: subprocess.Popen[str], text: str) -> None:
    """Read what *process* prints until a line with *text*."""
    assert process.stdout is not None
    told = []
    for line in process.stdout:
        told.append(line)
        if text in line:
            return
    pytest.fail(f"{text!r} was never printed: {''.join(told)}")


def killed(process: subprocess.Popen[str], least: int = 1) -> list[Any]:
    """Kill *process* once it has *least* descendants; return those that outlive it."""
    psutil = pytest.importorskip("psutil")
    started: list[Any] = []
    while len(started) < least:
        assert process.poll() is None, "it ended before anybody killed it"
        started = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    return [each for each in psutil.wait_procs(started, SECONDS / 4)[1] if _runs(each)]


def _runs(process: Any) -> bool:
    """Tell whether *process* is more than an entry that nobody has asked about."""
    psutil = pytest.importorskip("psutil")
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
