"""An archive of recordings in, its members out; nothing is written to disk, and all is bounded."""

from __future__ import annotations

import io
import tarfile
import zipfile
import zlib
from typing import TYPE_CHECKING, NamedTuple

from foretrace.errors import TraceError
from foretrace.tracer.readers.decompress import refuse_size
from foretrace.util.limits import MEMBERS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import IO

ZIP = b"PK\x03\x04"
TAR_MARK, TAR_AT = b"ustar", 257


class Member(NamedTuple):
    """One file of an archive: its path in it, and what it holds, maybe compressed."""

    name: str
    raw: bytes


def is_archive(raw: bytes) -> bool:
    """Tell whether *raw* is a zip or tar archive."""
    return raw.startswith(ZIP) or raw.startswith(TAR_MARK, TAR_AT)


def read_members(raw: bytes, source: str, size_limit: int) -> list[Member]:
    """Return the regular files of an archive, in the order of their names.

    Raises
    ------
    TraceError
        It is damaged, has too many members, or they unpack to more than *size_limit* bytes.
    """
    members: list[Member] = []
    size = 0
    try:
        for count, (name, file) in enumerate(_zip(raw) if raw.startswith(ZIP) else _tar(raw)):
            MEMBERS.check(count + 1, source, TraceError)
            content = file.read(size_limit - size + 1)
            size += len(content)
            if size > size_limit:
                raise refuse_size(source, size_limit)
            members.append(Member(name, content))
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, OSError,
            RuntimeError, NotImplementedError, ValueError) as error:  # fmt: skip
        raise TraceError(f"{source}: damaged archive ({error}); copy it again") from error
    return sorted(members)


def _zip(raw: bytes) -> Iterator[tuple[str, IO[bytes]]]:
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        for info in archive.infolist():
            if not info.is_dir():
                with archive.open(info) as file:
                    yield info.filename, file


def _tar(raw: bytes) -> Iterator[tuple[str, IO[bytes]]]:
    with tarfile.open(fileobj=io.BytesIO(raw), mode="r:") as archive:
        for info in archive:
            if info.isreg() and (file := archive.extractfile(info)) is not None:
                yield info.name, file
