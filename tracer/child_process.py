"""A process that ends with the one that started it, also where that one is killed.

Called by the child, about itself: nothing runs between fork and exec, and threads do no harm.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import time
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

PR_SET_PDEATHSIG = 1
WATCH_SECONDS = 1.0


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
