"""A command run on a terminal of its own: what it writes there, escape codes included."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios


def on_terminal(*arguments: str, columns: int = 80, **environment: str) -> str:
    """Run ``foretrace`` with *arguments* on a terminal that is *columns* wide; it must end with 0.

    Variables of the *environment* that change colours or widths are only those given.
    """
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    inherited = {
        k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")
    }
    running = subprocess.Popen(
        [sys.executable, "-m", "foretrace", *arguments],
        stdin=its,
        stdout=its,
        stderr=its,
        env={**inherited, "TERM": "xterm-256color", **environment},
    )
    os.close(its)
    written = _all_of(ours)
    os.close(ours)
    assert running.wait() == 0, written
    return written.replace("\r\n", "\n")


def _all_of(terminal: int) -> str:
    """Read until nobody writes any more."""
    parts: list[bytes] = []
    while True:
        try:
            part = os.read(terminal, 1 << 16)
        except OSError:  # Linux says so at the end
            part = b""
        if not part:
            return b"".join(parts).decode()
        parts.append(part)
