"""A file is written completely or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretrace.atomic import write_atomically


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
