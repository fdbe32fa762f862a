"""Write a file completely or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from tempfile import NamedTemporaryFile

_MODE = 0o644


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
    with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
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
