"""Load a recording, whatever wrote it: the content decides, never the suffix."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from foretrace.errors import TraceError
from foretrace.tracer.readers.kineto.read import read_kineto
from foretrace.tracer.readers.merge_ranks import join_ranks
from foretrace.tracer.readers.nsight.read import read_nsight
from foretrace.tracer.readers.operation_timeline import is_timeline, read_timeline
from foretrace.tracer.readers.parquet import read_parquet, save
from foretrace.util.exhaustion import within_means
from foretrace.util.limits import OBJECTS, UNPACKED
from foretrace.util.text_file import BYTE_ORDER_MARK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foretrace.tracer.trace import Trace

__all__ = ["load", "save"]

LARGEST_CHUNK, SMALLEST_CHUNK = 1 << 22, 1 << 14
"""Bytes decompressed at a time: few calls where there is one member, few copies where many."""
GZIP, SQLITE, PARQUET = b"\x1f\x8b", b"SQLite format 3\x00", b"PAR1"
OBJECT = ord("{")
JSON_STARTS = (b"{", b"[")
OTHERS = {
    b"PK\x03\x04": "a zip archive; unpack it and give the trace inside",
    b"\x28\xb5\x2f\xfd": "compressed with zstd; decompress it first",
    b"BZh": "compressed with bzip2; decompress it first",
    b"\xfd7zXZ": "compressed with xz; decompress it first",
}


def load(path: str | Path | Sequence[str | Path], *, size_limit: int | None = None) -> Trace:
    """Load a recording.

    Parameters
    ----------
    path
        A Kineto trace (JSON), an operation-level timeline (JSON), an SQLite export of Nsight
        Systems, each of them plain or compressed with gzip, or a Foretrace file. Several files
        are the ranks of one job.
    size_limit
        Bytes that a compressed file may unpack to; by default 64 MiB, or a hundred times its own
        size where that is more.

    Raises
    ------
    TraceError
        If a file cannot be read, or is nothing of these; the text says what it is instead.
    """
    if isinstance(path, str | Path):
        return _load_one(Path(path), size_limit)
    return join_ranks([_load_one(Path(one), size_limit) for one in path])


def load_bytes(raw: bytes, source: str, on_disk: int) -> Trace:
    """Load the uncompressed content of a recording that took *on_disk* bytes; as `load` does."""
    with within_means(source, TraceError):
        return _read(raw, source, on_disk)


def _load_one(path: Path, size_limit: int | None) -> Trace:
    with within_means(path.name, TraceError):
        raw = _read_bytes(path)
        if raw.startswith(PARQUET):
            return read_parquet(path)
        on_disk = len(raw)
        if raw.startswith(GZIP):
            raw = _decompress(raw, path.name, size_limit or UNPACKED.allowed(on_disk))
        return _read(raw, path.name, on_disk)


def _read(raw: bytes, source: str, on_disk: int) -> Trace:
    if raw.startswith(SQLITE):
        return read_nsight(raw, source, on_disk)
    if raw.startswith(PARQUET):
        raise TraceError(f"{source}: a Parquet file inside gzip; decompress it first")
    raw = raw.removeprefix(BYTE_ORDER_MARK)
    if raw[:4096].lstrip().startswith(JSON_STARTS):
        OBJECTS.check(_count_objects(raw), source, TraceError, on_disk=on_disk)
        return read_timeline(raw, source) if is_timeline(raw) else read_kineto(raw, source)
    raise TraceError(f"{source}: {_what_it_is(raw)}")


def _count_objects(raw: bytes) -> int:
    """Return how many objects the JSON *raw* has at most; a cache's worth of it at a time."""
    content, size = np.frombuffer(raw, np.uint8), 1 << 16
    parts = (content[at : at + size] == OBJECT for at in range(0, len(content), size))
    return sum(int(np.count_nonzero(part)) for part in parts)


def _read_bytes(path: Path) -> bytes:
    try:
        if path.is_dir():
            raise TraceError(f"{path}: a folder; name the trace files in it")
        if path.exists() and not path.is_file():
            raise TraceError(f"{path}: no regular file; write the trace into a file first")
        return path.read_bytes()
    except FileNotFoundError as error:
        raise TraceError(f"{path}: there is no such file") from error
    except OSError as error:
        raise TraceError(f"{path}: cannot be read ({error.strerror})") from error


def _decompress(raw: bytes, source: str, size_limit: int) -> bytes:
    """Decompress all members of a gzip file; one that is cut short gives what it still has."""
    pieces, size, at, take = [], 0, 0, LARGEST_CHUNK
    while raw.startswith(GZIP, at):
        member, began = zlib.decompressobj(wbits=31), at
        while at < len(raw) and not member.eof:
            chunk = raw[at : at + take]
            try:
                piece = member.decompress(chunk, size_limit - size + 1)
            except zlib.error as error:
                raise TraceError(f"{source}: damaged gzip file ({error}); copy it again") from error
            at += len(chunk) - len(member.unused_data) - len(member.unconsumed_tail)
            pieces.append(piece)
            size += len(piece)
            if size > size_limit:
                raise TraceError(
                    f"{source}: unpacks to more than {size_limit:,} bytes; record fewer steps, or "
                    f"set {UNPACKED.variable} if it is meant to"
                )
        take = min(max(2 * (at - began), SMALLEST_CHUNK), LARGEST_CHUNK)
    return b"".join(pieces)


def _what_it_is(raw: bytes) -> str:
    if not raw.strip():
        return "the file is empty; record it again"
    for start, what in OTHERS.items():
        if raw.startswith(start):
            return what
    return (
        "no trace: neither JSON, SQLite nor Parquet "
        "(an .nsys-rep or .qdrep needs 'nsys export --type sqlite' first)"
    )
