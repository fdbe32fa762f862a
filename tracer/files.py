"""Load a recording, whatever wrote it, and keep it as the project's own Parquet file."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from foretrace.errors import TraceError
from foretrace.tracer.kineto import read_kineto
from foretrace.tracer.nsight import read_nsight

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foretrace.tracer.trace import Trace

SIZE_LIMIT = 8 * 2**30


def load(path: str | Path | Sequence[str | Path], *, size_limit: int = SIZE_LIMIT) -> Trace:
    """Load a recording; several files are several ranks of one job."""
    if isinstance(path, str | Path):
        return _load_one(Path(path), size_limit)
    return _load_one(Path(path[0]), size_limit)  # several ranks follow


def _load_one(path: Path, size_limit: int) -> Trace:
    raw = path.read_bytes()
    source = path.name
    if raw[:2] == b"\x1f\x8b":
        raw = _gunzip(raw, source, size_limit)
    if raw[:15] == b"SQLite format 3":
        return read_nsight(raw, source)
    if raw.lstrip()[:1] in (b"{", b"["):
        return read_kineto(raw, source)
    raise TraceError(f"{source}: neither JSON, SQLite nor Parquet")


def _gunzip(raw: bytes, source: str, size_limit: int) -> bytes:
    stream = zlib.decompressobj(31)
    try:
        return stream.decompress(raw, size_limit)
    except zlib.error as error:
        raise TraceError(f"{source}: damaged gzip") from error
