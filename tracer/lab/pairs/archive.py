"""Pairs on their way to disk: tar archives of measurements and compressed recordings.

An archive holds, per model, ``CHANGE.pair.json`` files, the ``.json.xz`` recordings they name, and
where operators were timed ``CHANGE.calibration.parquet``. It is complete in itself. Needs the
standard library only; `read_archive` reads what this writes.
"""

from __future__ import annotations

import json
import lzma
import tarfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

MIB = 1 << 20
ARCHIVE_BYTES = 16 * MIB
ARCHIVES = 8
HEADER_BYTES = 2048  # of a tar member: header and padding
TAIL_BYTES = 20480  # of a tar archive: end marks, padded
PAIR = ".pair.json"
CALIBRATION = ".calibration.parquet"


def compress(path: Path) -> Path:
    """Replace the recording *path* by ``path.xz``; return the new path."""
    packed = path.with_name(path.name + ".xz")
    packed.write_bytes(lzma.compress(path.read_bytes(), preset=3))
    path.unlink()
    return packed


def pack(
    folder: Path, out: Path, stem: str, *, limit: int = ARCHIVE_BYTES, archives: int = ARCHIVES
) -> tuple[list[Path], list[str]]:
    """Put every pair under *folder* into ``out/stem-N.tar``; return archives and what was left out.

    Pairs are taken in order; one goes into the first archive with room for it and its files. What
    fits into none of at most *archives* files of *limit* bytes is left out.
    """
    contents: list[dict[Path, int]] = []
    left_out = []
    for pair in sorted(folder.glob(f"*/*{PAIR}"), key=lambda p: p.stat().st_mtime_ns):
        files = {path: _tar_bytes(path) for path in _files(pair)}
        home = next((content for content in contents if _fits(content, files, limit)), None)
        if home is None and len(contents) < archives and _fits({}, files, limit):
            home = {}
            contents.append(home)
        if home is None:
            left_out.append(f"{pair.parent.name} {pair.name.removesuffix(PAIR)}: no room left")
        else:
            home.update(files)
    out.mkdir(parents=True, exist_ok=True)
    paths = []
    for number, content in enumerate(contents, 1):
        paths.append(out / f"{stem}-{number}.tar")
        write_tar(paths[-1], folder, content)
    return paths, left_out


def _files(pair: Path) -> list[Path]:
    content = json.loads(pair.read_text("utf-8"))
    recordings = (pair.with_name(content[s]["trace"] + ".xz") for s in ("before", "after"))
    calibration = pair.with_name(pair.name.removesuffix(PAIR) + CALIBRATION)
    return [pair, *recordings, *([calibration] if calibration.exists() else [])]


def _fits(content: dict[Path, int], files: dict[Path, int], limit: int) -> bool:
    return sum({**content, **files}.values()) + TAIL_BYTES <= limit


def _tar_bytes(path: Path) -> int:
    return path.stat().st_size + HEADER_BYTES


def write_tar(path: Path, folder: Path, files: Iterable[Path]) -> None:
    """Put *files*, which lie under *folder*, into the archive *path*, whole or not at all."""
    unfinished = path.with_suffix(".part")
    with tarfile.open(unfinished, "w") as archive:
        for file in files:
            entry = tarfile.TarInfo(file.relative_to(folder).as_posix())
            entry.size = file.stat().st_size
            with file.open("rb") as content:
                archive.addfile(entry, content)
    unfinished.replace(path)
