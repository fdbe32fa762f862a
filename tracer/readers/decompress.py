"""Compressed bytes in, their content out, never more of it than was allowed."""

from __future__ import annotations

import bz2
import lzma
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa

from foretrace.errors import TraceError
from foretrace.util.limits import UNPACKED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LARGEST_CHUNK, SMALLEST_CHUNK = 1 << 22, 1 << 14
"""Bytes decompressed at a time: few calls where there is one member, few copies where many."""
GZIP, ZSTD, BZIP2, XZ = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"BZh", b"\xfd7zXZ"


def decompress(raw: bytes, source: str, size_limit: int) -> bytes:
    """Return the content of *raw*, which stays as it is if it is not compressed.

    Raises
    ------
    TraceError
        It is damaged, or unpacks to more than *size_limit* bytes.
    """
    if raw.startswith(GZIP):
        return _gunzip(raw, source, size_limit)
    for start, pieces in PIECES:
        if raw.startswith(start):
            return _collect(pieces(raw), source, size_limit)
    return raw


def decompress_head(head: bytes, size: int) -> bytes:
    """Return the first *size* bytes at most of what *head*, the beginning of a file, unpacks to."""
    if head.startswith(GZIP):
        with suppress(zlib.error):
            return zlib.decompressobj(wbits=31).decompress(head, size)
    for start, pieces in PIECES:
        if head.startswith(start):
            with suppress(OSError, EOFError, lzma.LZMAError, pa.ArrowException):
                return next(pieces(head, size), b"")
    return head[:size]


def refuse_size(source: str, size_limit: int) -> TraceError:
    """Return the error about something that unpacks to more than it may."""
    return TraceError(
        f"{source}: unpacks to more than {size_limit:,} bytes; record fewer steps, or "
        f"set {UNPACKED.variable} if it is meant to"
    )


def _collect(pieces: Iterator[bytes], source: str, size_limit: int) -> bytes:
    parts, size = [], 0
    try:
        for piece in pieces:
            parts.append(piece)
            size += len(piece)
            if size > size_limit:
                raise refuse_size(source, size_limit)
    except (OSError, EOFError, lzma.LZMAError, pa.ArrowException) as error:
        raise TraceError(f"{source}: damaged compressed file ({error}); copy it again") from error
    return b"".join(parts)


def _zstd(raw: bytes, take: int = LARGEST_CHUNK) -> Iterator[bytes]:
    with pa.CompressedInputStream(pa.py_buffer(raw), "zstd") as stream:
        while piece := stream.read(take):
            yield piece


def _one_by_one(
    make: Callable[[], bz2.BZ2Decompressor | lzma.LZMADecompressor],
) -> Callable[..., Iterator[bytes]]:
    def pieces(raw: bytes, take: int = LARGEST_CHUNK) -> Iterator[bytes]:
        decompressor = make()
        yield decompressor.decompress(raw, take)
        while not decompressor.eof:
            if decompressor.needs_input:
                raise EOFError("it ends too early")
            yield decompressor.decompress(b"", take)

    return pieces


PIECES = (
    (ZSTD, _zstd),
    (BZIP2, _one_by_one(bz2.BZ2Decompressor)),
    (XZ, _one_by_one(lzma.LZMADecompressor)),
)
"""How a file begins that is not gzip's, and what gives its content piece by piece."""


def _gunzip(raw: bytes, source: str, size_limit: int) -> bytes:
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
                raise refuse_size(source, size_limit)
        take = min(max(2 * (at - began), SMALLEST_CHUNK), LARGEST_CHUNK)
    return b"".join(pieces)
