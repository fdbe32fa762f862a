"""Processes that measure: what they start with, and that they end with the one that started them.

`end_with` is called by the child, about itself: nothing runs between fork and exec, and threads do
no harm. As a script, ``child_process.py PARENT COMMAND...`` calls it for the programs of others: it
becomes COMMAND, which ends with the process PARENT.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import sys
import time
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
FIXED_ENVIRONMENT = {
    "MALLOC_MMAP_THRESHOLD_": "1073741824",
    "MALLOC_TRIM_THRESHOLD_": "1073741824",
    "MALLOC_TOP_PAD_": "67108864",
    **ONE_THREAD,
}
"""For a process whose CPU times are to be compared, set before it starts.

The allocator's own thresholds move when a large block is freed, so that measuring one job changes
the page faults, and the time, of the next. One thread leaves nothing to the scheduler.
"""

GRACE_SECONDS = 3.0  # between asking a process to end and killing it
PR_SET_PDEATHSIG = 1
WATCH_SECONDS = 1.0


def measuring_environment(*, cpu: bool) -> dict[str, str]:
    """Return the environment of a measuring process: our package found, a CPU's allocator fixed."""
    return plain_environment(**(FIXED_ENVIRONMENT if cpu else {}))


def plain_environment(**settings: str) -> dict[str, str]:
    """Return the environment that a user's own process has, our package found, with *settings*."""
    package = find_spec("foretrace")
    assert package is not None
    assert package.origin is not None
    root = str(Path(package.origin).resolve().parent.parent)
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    return {**os.environ, **settings, "PYTHONPATH": path}


def end_with(parent: int) -> None:  # pragma: no cover - changes the whole process
    """Let this process end when the process *parent*, which started it, does.

    Linux sends the signal; elsewhere a thread looks once a second who the parent is.
    """
    if platform.system() == "Linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    else:
        Thread(target=watch, args=(parent,), daemon=True).start()
    if os.getppid() != parent:  # it was too quick
        os._exit(1)


def ending_with_this(*command: str) -> list[str]:
    """Return *command* so that it ends with this process, where Linux sees to it.

    >>> ending_with_this("nsys", "export")[-2:]
    ['nsys', 'export']
    """
    return [sys.executable, "-I", __file__, str(os.getpid()), *command]


def worker_of_this() -> Callable[[int], None]:
    """Return a ``worker_init_fn`` of a DataLoader whose workers end with this process.

    Those of torch look for their parent as well, but not one that was killed while they started.
    """
    return partial(_start_worker, os.getpid())


def _start_worker(parent: int, _worker: int) -> None:  # pragma: no cover - in the worker
    end_with(parent)


def watch(parent: int) -> None:  # pragma: no cover - ends the process
    """Wait until *parent* is no longer the parent of this process, and end it."""
    while os.getppid() == parent:
        time.sleep(WATCH_SECONDS)
    os._exit(1)


if __name__ == "__main__":  # pragma: no cover - becomes another program
    end_with(int(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606 - no shell: the command as it was given
