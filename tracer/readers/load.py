"""Load a recording, whatever wrote it: the content decides, never the suffix."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from foretrace.errors import TraceError
from foretrace.tracer.readers.kineto.read import read_kineto
from foretrace.tracer.readers.merge_ranks import join_ranks
from foretrace.tracer.readers.nsight.read import read_nsight
from foretrace.tracer.readers.operation_timeline import is_timeline, read_timeline
from foretrace.tracer.readers.parquet import read_parquet, save

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foretrace.tracer.trace import Trace

__all__ = ["load", "save"]

SIZE_LIMIT = 8 * 2**30
"""Bytes that a compressed file may unpack to."""
MOST_COMPRESSED = 1032
"""No deflate stream unpacks to more bytes per byte."""
GZIP, SQLITE, PARQUET = b"\x1f\x8b", b"SQLite format 3\x00", b"PAR1"
JSON_STARTS = (b"{", b"[")
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
OTHERS = {
    b"PK\x03\x04": "a zip archive; unpack it and give the trace inside",
    b"\x28\xb5\x2f\xfd": "compressed with zstd; decompress it first",
    b"BZh": "compressed with bzip2; decompress it first",
    b"\xfd7zXZ": "compressed with xz; decompress it first",
}


def load(path: str | Path | Sequence[str | Path], *, size_limit: int = SIZE_LIMIT) -> Trace:
    """Load a recording.

    Parameters
    ----------
    path
        A Kineto trace (JSON), an operation-level timeline (JSON), an SQLite export of Nsight
        Systems, each of them plain or compressed with gzip, or a Foretrace file. Several files
        are the ranks of one job.
    size_limit
        Bytes that a compressed file may unpack to.

    Raises
    ------
    TraceError
        If a file cannot be read, or is nothing of these; the text says what it is instead.
    """
    if isinstance(path, str | Path):
        return _load_one(Path(path), size_limit)
    return join_ranks([_load_one(Path(one), size_limit) for one in path])


def _load_one(path: Path, size_limit: int) -> Trace:
    raw = _read_bytes(path)
    source = path.name
    if raw.startswith(PARQUET):
        return read_parquet(path)
    if raw.startswith(GZIP):
        raw = _decompress(raw, source, size_limit)
    if raw.startswith(SQLITE):
        return read_nsight(raw, source)
    if raw.startswith(PARQUET):
        raise TraceError(f"{source}: a Parquet file inside gzip; decompress it first")
    if raw[:4096].removeprefix(BYTE_ORDER_MARK).lstrip().startswith(JSON_STARTS):
        return read_timeline(raw, source) if is_timeline(raw) else read_kineto(raw, source)
    raise TraceError(f"{source}: {_what_it_is(raw)}")


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
    if len(raw) * MOST_COMPRESSED <= size_limit and (whole := _decompress_whole(raw)) is not None:
        return whole
    pieces, size = [], 0
    while raw.startswith(GZIP):
        member = zlib.decompressobj(wbits=31)
        try:
            piece = member.decompress(raw, size_limit - size + 1)
        except zlib.error as error:
            raise TraceError(f"{source}: damaged gzip file ({error}); copy it again") from error
        pieces.append(piece)
        size += len(piece)
        if size > size_limit:
            raise TraceError(
                f"{source}: unpacks to more than {size_limit:,} bytes; "
                "record fewer steps, or raise the limit"
            )
        raw = member.unused_data
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _decompress_whole(raw: bytes) -> bytes | None:
    """Decompress a sound file of one member into one buffer, a third faster; else None."""
    size = int.from_bytes(raw[-4:], "little")
    if size > len(raw) * MOST_COMPRESSED:
        return None
    try:
        whole = zlib.decompress(raw, wbits=31, bufsize=max(size, 1))
    except (zlib.error, MemoryError):
        return None
    return whole if len(whole) == size else None


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
