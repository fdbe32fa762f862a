"""Processes that are killed, and what becomes of those that they started."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from threading import Timer
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from foretrace.tracer.child_process import plain_environment
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS = 120.0
"""After which a process is ended, so that a test fails and does not hang."""
FAMILY = "FORETRACE_TEST_FAMILY"
"""In the environment of a process and, unless they have another, of all that it starts."""


@contextmanager
def python(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run an interpreter with *arguments* in the project's folder; its output is read by lines."""
    with subprocess.Popen(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=plain_environment(**{FAMILY: uuid4().hex}),
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
    """Kill *process* once it has *least* descendants; return those that outlive it.

    These are found also where they were started after a look at its descendants, or had lost it
    as an ancestor before.
    """
    psutil = pytest.importorskip("psutil")
    family = psutil.Process(process.pid).environ()[FAMILY]
    while len(psutil.Process(process.pid).children(recursive=True)) < least:
        assert process.poll() is None, "it ended before anybody killed it"
    process.kill()
    process.wait()
    alive = [each for each in psutil.process_iter() if _is_of(family, each)]
    return [each for each in psutil.wait_procs(alive, SECONDS / 4)[1] if _is_of(family, each)]


def _is_of(family: str, process: Any) -> bool:
    """Tell whether *process* is of *family*, and more than an entry that nobody has asked about."""
    psutil = pytest.importorskip("psutil")
    try:
        return process.environ().get(FAMILY) == family and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.Error, OSError):
        return False
