"""Write a file completely or not at all."""

from __future__ import annotations

import errno
import os
import platform
import time
import zlib
from pathlib import Path
from tempfile import NamedTemporaryFile

_MODE = 0o644
MARK = ".part-"
"""Follows host and process in the name of a temporary file: `sweep` finds what is left by them."""
STALE_SECONDS = 3_600
"""A younger file may be of a live process of another host, which writes here over a network."""


def write_atomically(path: Path, content: bytes) -> None:
    """Write *content* to a temporary name beside *path*, then rename it.

    A link stays: what it points at is replaced. A device or a pipe is written to, never replaced.

    Raises
    ------
    OSError
        The folder is missing or not writable, or the disk is full; *path* is then unchanged.
    """
    if path.exists() and not path.is_file():
        path.write_bytes(content)
        return
    try:
        _replace(path.resolve(), content)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def sweep(folder: Path) -> int:
    """Remove what killed processes left of their writing into *folder*; return how many files."""
    swept = 0
    for path in folder.glob(f".*.*{MARK}*"):
        host, _, process = path.name.rpartition(MARK)[0].rpartition(".")[2].rpartition("-")
        try:
            if host == _host():
                is_left = not _is_running(int(process))
            else:
                is_left = time.time() - path.lstat().st_mtime > STALE_SECONDS
            if is_left:
                path.unlink()
                swept += 1
        except (OSError, ValueError):
            continue  # somebody else was quicker, or it is not ours
    return swept


def _host() -> str:
    """Return what tells this machine from others that write here, in few letters."""
    return f"{zlib.crc32(platform.node().encode('utf-8', 'replace')):x}"


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def check_writable(path: Path) -> None:
    """Raise now what `write_atomically` would raise after long work.

    Raises
    ------
    OSError
        *path* is a folder, or its own folder is missing or not writable.
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if path.exists() and not path.is_file():
        return
    try:
        with NamedTemporaryFile(dir=path.resolve().parent, prefix=f".{path.name}."):
            pass
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def _replace(path: Path, content: bytes) -> None:
    prefix = f".{path.name}.{_host()}-{os.getpid()}{MARK}"
    with NamedTemporaryFile(dir=path.parent, prefix=prefix, delete=False) as file:
        temporary = Path(file.name)
        try:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            temporary.chmod(_MODE)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
