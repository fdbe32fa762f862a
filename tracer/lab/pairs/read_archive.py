"""Pairs from disk: the archives that `archive` writes, or the folders they are unpacked to."""

from __future__ import annotations

import io
import json
import lzma
import tarfile
import tempfile
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretrace.errors import TraceError
from foretrace.tracer.lab.pairs.archive import CALIBRATION, PAIR
from foretrace.tracer.recording.record import read_recorded

if TYPE_CHECKING:
    from collections.abc import Callable

    from foretrace.tracer.trace import Trace

RECORDING_BYTES = 2 << 30


@dataclass(frozen=True)
class Pair:
    """A change that was really made: recordings and unprofiled step times of both sides.

    ``noise`` is the share by which the ratio of the two drifted between the halves of the
    measurement; ``scenario`` is the text of the what-if that predicts the change.
    ``calibration`` is the content of its calibration file, None where there is none.
    """

    name: str
    model: str
    change: str
    scenario: str
    before: Trace
    read_after: Callable[[], Trace]
    before_ns: float
    after_ns: float
    noise: float
    calibration: bytes | None = None

    @cached_property
    def after(self) -> Trace:
        """The recording after the change, read when it is first asked for."""
        return self.read_after()


def read_pairs(where: str | Path) -> list[Pair]:
    """Return the pairs of an archive, or of all archives and unpacked pairs in a folder.

    Raises
    ------
    TraceError
        There is no pair, or a file is broken or missing; the text names it.
    """
    where = Path(where)
    if not where.exists():
        raise TraceError(f"{where} does not exist: give an archive of record-pairs or its folder")
    if where.is_dir():
        pairs = [pair for path in sorted(where.rglob("*.tar")) for pair in read_pairs(path)]
        pairs += _pairs(pair_members(where), where)
    else:
        pairs = _pairs(members(where), where)
    if not pairs:
        raise TraceError(f"{where} holds no pair: expected files that end in {PAIR}")
    return pairs


def pair_members(where: str | Path) -> dict[str, Callable[[], bytes]]:
    """Return name -> function that gives the content, for all files of an archive or a folder.

    Raises
    ------
    TraceError
        *where* is no archive and no folder.
    """
    where = Path(where)
    if not where.is_dir():
        return members(where)
    paths = sorted([*where.rglob("*.json*"), *where.rglob(f"*{CALIBRATION}")])
    return {path.relative_to(where).as_posix(): path.read_bytes for path in paths}


def read_pair(files: dict[str, Callable[[], bytes]], name: str, where: str | Path) -> Pair:
    """Return the pair whose file is called *name*, of the *files* that `pair_members` found.

    Raises
    ------
    TraceError
        It is not there, or a file is broken or missing; the text names it.
    """
    return _pair(files, name, Path(where))


def members(path: Path) -> dict[str, Any]:
    """Return name -> function that gives the content, for the plain files of an archive."""
    try:
        with tarfile.open(path) as archive:
            contents = {m.name: archive.extractfile(m).read() for m in archive if m.isfile()}  # type: ignore[union-attr]
    except (tarfile.TarError, OSError, EOFError) as error:
        text = f"{path} is no archive of record-pairs or shaped_network: {error}"
        raise TraceError(text) from error
    return {name: io.BytesIO(content).getvalue for name, content in contents.items()}


def _pairs(files: dict[str, Any], where: Path) -> list[Pair]:
    return [_pair(files, name, where) for name in sorted(files) if name.endswith(PAIR)]


def _pair(files: dict[str, Any], name: str, where: Path) -> Pair:
    try:
        content = json.loads(files[name]())
        sides = [content["before"], content["after"]]
        read_before, read_after = (_trace(files, name, side, where) for side in sides)
        before = read_before()
        calibration = files.get(name.removesuffix(PAIR) + CALIBRATION)
        return Pair(
            name=f"{content['device']}/{content['model']}/{content['change']}",
            model=content["model"],
            change=content["change"],
            scenario=content["scenario"],
            before=before,
            read_after=read_after,
            before_ns=float(sides[0]["mean_ns"]),
            after_ns=float(sides[1]["mean_ns"]),
            noise=float(content["noise"]),
            calibration=calibration() if calibration else None,
        )
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, TraceError):
            raise
        raise TraceError(f"{where}: {name} is broken: {type(error).__name__} {error}") from error


def _trace(
    files: dict[str, Any], pair: str, side: dict[str, Any], where: Path
) -> Callable[[], Trace]:
    """Return what reads the recording of one *side*."""
    member = f"{pair.rpartition('/')[0]}/{side['trace']}".lstrip("/")
    if member + ".xz" not in files:
        raise TraceError(f"{where}: {pair} names {member}.xz, which is not there")
    return partial(read_recording, files[member + ".xz"], side["facts"], member, where)


def read_recording(
    read: Callable[[], bytes], facts: dict[str, Any], member: str, where: Path
) -> Trace:
    """Return the recording *member* of *where*; *read* gives it compressed, *facts* its job."""
    try:
        content = lzma.LZMADecompressor().decompress(read(), RECORDING_BYTES)
    except lzma.LZMAError as error:
        raise TraceError(f"{where}: {member}.xz is broken: {error}") from error
    with tempfile.TemporaryDirectory(prefix="foretrace-") as folder:
        path = Path(folder) / "recording.json"
        path.write_bytes(content)
        return read_recorded(path, facts, source=member)
