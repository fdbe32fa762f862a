"""A file is written completely or not at all."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from foretrace.util.atomic_write import check_writable, sweep, write_atomically
from tests.support.processes import python

KILLED = """
import os, sys
from pathlib import Path
from foretrace.util.atomic_write import write_atomically
os.fsync = lambda _file: os.kill(os.getpid(), 9)
write_atomically(Path(sys.argv[1]), b"new")
"""


def test_the_content_replaces_the_old(tmp_path: Path) -> None:
    """The file can be read by others afterwards."""
    path = tmp_path / "a.txt"
    path.write_text("old", "utf-8")
    write_atomically(path, b"new")

    assert path.read_text("utf-8") == "new"
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    """The error is the system's own."""
    with pytest.raises(FileNotFoundError):
        write_atomically(tmp_path / "gone" / "a.txt", b"new")


def test_a_failure_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the rename fails, the temporary file goes and the old one stays."""

    def refuse(_path: Path, _target: Path) -> None:
        raise OSError(30, "Read-only file system")

    path = tmp_path / "a.txt"
    path.write_text("old", "utf-8")
    monkeypatch.setattr(Path, "replace", refuse)

    with pytest.raises(OSError, match="Read-only"):
        write_atomically(path, b"new")
    assert [p.read_text("utf-8") for p in tmp_path.iterdir()] == ["old"]


def test_a_device_is_written_to_and_never_replaced(tmp_path: Path) -> None:
    """What is no regular file (here a pipe) gets the content and stays what it is."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_atomically(pipe, b"new")

    assert os.read(reader, 10) == b"new"
    assert pipe.is_fifo()
    os.close(reader)


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    """The file behind the link is replaced."""
    (tmp_path / "file").write_text("old", "utf-8")
    link = tmp_path / "link"
    link.symlink_to("file")
    write_atomically(link, b"new")

    assert link.is_symlink()
    assert (tmp_path / "file").read_text("utf-8") == "new"


def test_an_error_names_the_file_and_not_its_temporary_name(tmp_path: Path) -> None:
    """The user sees the path that was given."""
    path = tmp_path / "gone" / "a.txt"
    with pytest.raises(FileNotFoundError) as caught:
        write_atomically(path, b"new")

    assert caught.value.filename == str(path)


def test_what_cannot_be_written_is_known_before(tmp_path: Path) -> None:
    """A folder, and a place in a folder that is not there; nothing is left behind."""
    for path in (tmp_path, tmp_path / "gone" / "a.txt"):
        with pytest.raises(OSError, match="directory") as refused:
            check_writable(path)
        assert refused.value.filename == str(path)
    check_writable(tmp_path / "a.txt")
    check_writable(Path(os.devnull))

    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_is_swept_at_once(tmp_path: Path) -> None:
    """It is ended in the middle of writing; the file that it would have replaced is the old one."""
    path = tmp_path / "a.txt"
    path.write_text("old", "utf-8")
    _kill_while_writing(path)

    assert sweep(tmp_path) == 1
    assert [each.read_text("utf-8") for each in tmp_path.iterdir()] == ["old"]


def test_what_others_may_be_writing_is_not_swept(tmp_path: Path) -> None:
    """A process of this machine that runs; one of another, until an hour has passed."""
    left, pid = _kill_while_writing(tmp_path / "a.txt")
    running, foreign = (
        left.with_name(left.name.replace(*names))
        for names in ((f"-{pid}.", f"-{os.getpid()}."), (f"-{pid}.", f"-elsewhere-{pid}."))
    )
    running.write_bytes(b"")
    left.rename(foreign)

    assert sweep(tmp_path) == 0
    for path in (running, foreign):
        os.utime(path, (0, 0))
    assert sweep(tmp_path) == 1
    assert [*tmp_path.iterdir()] == [running]


def _kill_while_writing(path: Path) -> tuple[Path, int]:
    """Return what a process leaves that is killed while it writes *path*, and its number."""
    with python("-c", KILLED, str(path)) as writer:
        assert writer.wait() == -signal.SIGKILL
    (left,) = path.parent.glob(".*")
    return left, writer.pid
