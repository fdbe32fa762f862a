"""Run measuring processes one after another, within a time budget, keeping whatever they leave.

Goes in: tasks. Comes out, in the tasks' folders: measurements and compressed recordings; returned:
in words, what there was no time or no way for.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING

from foretrace.tracer.child_process import GRACE_SECONDS, measuring_environment
from foretrace.tracer.lab.pairs.archive import PAIR, compress
from foretrace.tracer.recording.machine_probe import cores

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import FrameType

    from foretrace.tracer.lab.pairs.worker import Task

FAILED = ".failed.json"
NO_TIME = "no time left"


def run_all(tasks: Sequence[Task]) -> list[str]:
    """Run *tasks* until their deadline or an interrupt; return what was left out.

    On a GPU the remaining time is shared out evenly among the remaining models.
    """
    with ThreadPoolExecutor(max(1, cores() // 2)) as pool:
        compressing: dict[Path, Future[Path]] = {}
        try:
            with stoppable():
                for number, task in enumerate(tasks):
                    left = task.deadline - time.time()
                    if left <= 0:
                        break
                    share = left if task.cpu else left / (len(tasks) - number)
                    _run(replace(task, deadline=time.time() + share))
                    _compress(pool, Path(task.folder), compressing, wait=task.cpu)
        except KeyboardInterrupt:
            say("stopped: packing what there is")
        for folder in {task.folder for task in tasks}:
            _compress(pool, Path(folder), compressing, wait=True)
    return [
        f"{task.model} {change}: {_why(Path(task.folder), change)}"
        for task in tasks
        for change in task.changes
        if not (Path(task.folder) / f"{change}{PAIR}").exists()
    ]


def run_one(task: Task) -> str | None:
    """Run *task*, which is of one change, and compress its recordings; return why it left nothing.

    An interrupt ends its process, and goes on to the caller.
    """
    folder = Path(task.folder)
    with stoppable():
        _run(task)
    for path in sorted([*folder.glob("*.before.json"), *folder.glob("*.after.json")]):
        compress(path)
    (change,) = task.changes
    return None if (folder / f"{change}{PAIR}").exists() else _why(folder, change)


def say(line: str) -> None:
    """Tell the user how it goes, on stderr."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def _run(task: Task) -> None:
    """Let a process of its own do *task*; note the reason if it dies."""
    folder = Path(task.folder)
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "process.log"
    with log.open("w", encoding="utf-8") as errors, _start(task, errors) as process:
        seconds = max(task.deadline - time.time(), 0) + GRACE_SECONDS
        timer = threading.Timer(seconds, _end, [process])
        timer.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                say(line.rstrip())
            code = process.wait()
        finally:
            timer.cancel()
            _end(process)
    if code > 0 or -code in (signal.SIGSEGV, signal.SIGABRT, signal.SIGKILL):
        lines = log.read_text("utf-8", errors="replace").split("\n")
        reason = next((line for line in reversed(lines) if line.strip()), f"exit code {code}")
        _note(folder, task.changes, reason)


def _start(task: Task, errors: IO[str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "foretrace.tracer.lab.pairs.worker"]
    return subprocess.Popen(  # noqa: S603 - our own module
        [*command, json.dumps(asdict(task)), str(os.getpid())],
        stdout=subprocess.PIPE,
        stderr=errors,
        encoding="utf-8",
        env=measuring_environment(cpu=task.cpu),
        start_new_session=True,
    )


def _note(folder: Path, changes: Sequence[str], reason: str) -> None:
    """Write *reason* down for all changes that have no result."""
    for change in changes:
        failed = folder / f"{change}{FAILED}"
        if not failed.exists() and not (folder / f"{change}{PAIR}").exists():
            failed.write_text(json.dumps({"why": reason}), "utf-8")


def _why(folder: Path, change: str) -> str:
    with suppress(OSError, ValueError, KeyError):
        return str(json.loads((folder / f"{change}{FAILED}").read_text("utf-8"))["why"])
    return NO_TIME


def _end(process: subprocess.Popen[str]) -> None:
    """End *process* and the loader workers it started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _compress(
    pool: ThreadPoolExecutor, folder: Path, started: dict[Path, Future[Path]], *, wait: bool
) -> None:
    """Compress the new recordings in *folder*; *wait* where cores are few."""
    for side in ("before", "after"):
        for path in sorted(folder.glob(f"*.{side}.json")):
            if path not in started:
                started[path] = pool.submit(compress, path)
    if wait:
        for path, job in started.items():
            if path.parent == folder:
                job.result()


@contextmanager
def stoppable() -> Iterator[None]:
    """Turn SIGTERM and SIGINT into `KeyboardInterrupt` while this is open."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
