"""Load a recording, whatever wrote it: the content decides, never the suffix."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from foretrace.errors import TraceError
from foretrace.tracer.readers.archives import is_archive, read_members
from foretrace.tracer.readers.decompress import decompress, decompress_head
from foretrace.tracer.readers.job_files import (
    HEAD,
    choose_cycle,
    looks_like_recording,
    may_be_recording,
)
from foretrace.tracer.readers.kineto.read import read_kineto
from foretrace.tracer.readers.merge_ranks import join_ranks
from foretrace.tracer.readers.nsight.exports import (
    REPORT,
    export_report,
    is_parquet_export,
    read_parquet_export,
)
from foretrace.tracer.readers.nsight.read import read_nsight
from foretrace.tracer.readers.operation_timeline import is_timeline, read_timeline
from foretrace.tracer.readers.parquet import read_parquet, save
from foretrace.util.exhaustion import within_means
from foretrace.util.limits import MEMBERS, OBJECTS, UNPACKED
from foretrace.util.text_file import BYTE_ORDER_MARK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foretrace.tracer.readers.job_files import Chosen
    from foretrace.tracer.trace import Trace

__all__ = ["load", "save"]

SQLITE, PARQUET = b"SQLite format 3\x00", b"PAR1"
OBJECT = ord("{")
JSON_STARTS = (b"{", b"[")
OTHERS = (
    (re.compile(rb"^[\w\"]+(,[\w\"]+)*,\"?Kernel_?Name", re.IGNORECASE), "a table of rocprof"),
    (re.compile(rb"XPlane|/device:|/host:CPU"), "a profile of JAX or XLA"),
)
"""What other tools write, by the beginning of it."""
ADVICE = "record with torch.profiler or nsys, and give what it writes"


def load(path: str | Path | Sequence[str | Path], *, size_limit: int | None = None) -> Trace:
    """Load a recording.

    Parameters
    ----------
    path
        A Kineto trace (JSON), an operation-level timeline (JSON), an SQLite export of Nsight
        Systems, each of them plain or compressed (gzip, zstd, bzip2, xz), a report or a Parquet
        export of Nsight Systems, or a Foretrace file. Several files are the ranks of one job; so
        are those of a folder or of a zip or tar archive, of which the last cycle counts.
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
        if os.path.isdir(path):  # noqa: PTH112 -- a name that no file can have is none
            return _load_folder(path, size_limit)
        raw = _read_bytes(path)
        if raw.startswith(PARQUET):
            return read_parquet(path)
        if REPORT.search(path.name) and not raw.startswith((SQLITE, b"{")):
            raw = export_report(path)
        on_disk, most = len(raw), size_limit or UNPACKED.allowed(len(raw))
        raw = decompress(raw, path.name, most)
        if is_archive(raw):
            return _load_archive(raw, path.name, most, on_disk)
        return _read(raw, path.name, on_disk)


def _load_folder(folder: Path, size_limit: int | None) -> Trace:
    """Load what a job left in *folder*: a Parquet export of nsys, or the files of its ranks."""
    if is_parquet_export(folder):
        size = sum(file.stat().st_size for file in folder.glob("*.parquet"))
        return _read(read_parquet_export(folder), folder.name, size)
    names: list[str] = []
    for path in folder.rglob("*"):
        MEMBERS.check(len(names) + 1, str(folder), TraceError)
        if path.is_file() and may_be_recording(path.name) and _starts_like_recording(path):
            names.append(path.relative_to(folder).as_posix())
    chosen = choose_cycle(names)
    return _join(
        [(name, _load_one(folder / name, size_limit)) for name in chosen.names], str(folder), chosen
    )


def _starts_like_recording(path: Path) -> bool:
    """Tell whether a file of a folder is a recording; of damaged ones, the reader says so."""
    if REPORT.search(path.name):
        return True
    try:
        with path.open("rb") as file:
            head = file.read(HEAD)
    except OSError as error:
        raise TraceError(f"{path}: cannot be read ({error.strerror})") from error
    return looks_like_recording(decompress_head(head, HEAD))


def _load_archive(raw: bytes, source: str, size_limit: int, on_disk: int) -> Trace:
    """Load the recordings in an archive; all members together unpack to *size_limit* at most."""
    contents: dict[str, bytes] = {}
    left = size_limit
    for name, packed in read_members(raw, source, size_limit):
        if may_be_recording(name) and not REPORT.search(name):
            content = decompress(packed, f"{source}: {name}", left)
            left -= len(content) * (content is not packed)
            if looks_like_recording(content):
                contents[name] = content
    chosen = choose_cycle(contents)
    return _join([(n, _read(contents[n], n, on_disk)) for n in chosen.names], source, chosen)


def _join(traces: Sequence[tuple[str, Trace]], where: str, chosen: Chosen) -> Trace:
    """Return the traces of one job's ranks as one; *where* they are, for messages."""
    if not traces:
        raise TraceError(f"{where}: holds no recording of torch.profiler or Nsight Systems")
    each = [trace for _, trace in traces]
    trace = each[0] if len(each) == 1 else join_ranks(each)
    if not chosen.earlier:
        return trace
    warnings = {**trace.meta.warnings, "earlier_cycles": chosen.earlier}
    return replace(trace, meta=replace(trace.meta, warnings=warnings))


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
        if path.exists() and not path.is_file():
            raise TraceError(f"{path}: no regular file; write the trace into a file first")
        return path.read_bytes()
    except FileNotFoundError as error:
        raise TraceError(f"{path}: there is no such file") from error
    except OSError as error:
        raise TraceError(f"{path}: cannot be read ({error.strerror})") from error


def _what_it_is(raw: bytes) -> str:
    if not raw.strip():
        return "the file is empty; record it again"
    for start, what in OTHERS:
        if start.search(raw[:HEAD]):
            return f"{what}; {ADVICE}"
    return f"no trace: neither JSON, SQLite nor Parquet; {ADVICE}"
