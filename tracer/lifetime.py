"""A process that ends with the one that started it, also where that one is killed.

Called by the child, about itself: nothing runs between fork and exec, and threads do no harm.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import time
from threading import Thread

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


def watch(parent: int) -> None:  # pragma: no cover - ends the process
    """Wait until *parent* is no longer the parent of this process, and end it."""
    while os.getppid() == parent:
        time.sleep(WATCH_SECONDS)
    os._exit(1)
